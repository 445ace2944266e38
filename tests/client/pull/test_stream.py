"""A stream returns exactly its range, in order, under all faults of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker_core.client.pull.received_message import decode_messages
from broker_core.client.pull.record_run import RecordRun
from broker_core.client.pull.stream import PullStream
from broker_core.codec.records import column_names as columns
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    ConnectionLost,
    InvalidArgument,
    MalformedRecord,
    NoPermission,
    OffsetOutOfRange,
    RemoteError,
    ServiceNotAvailable,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode
from tests.client.queue_broker import (
    QUEUE,
    ScriptedBroker,
    ScriptedCluster,
    scripted_cluster,
    stored,
)

Run = Callable[..., Any]


def broker_with(count: int, first_offset: int = 0, **options: Any) -> ScriptedBroker:
    offsets = range(first_offset, first_offset + count)
    return ScriptedBroker([stored(offset, **options) for offset in offsets], first_offset)


async def collected(stream: PullStream) -> list[RecordRun]:
    async with stream:
        return [run async for run in stream]


def offsets_of(runs: list[RecordRun]) -> list[int]:
    return [message.queue_offset for run in runs for message in decode_messages(run.records, QUEUE)]


def scenario(
    run_async: Run,
    broker: ScriptedBroker,
    work: Callable[[ScriptedCluster], Coroutine[Any, Any, Any]],
) -> Any:
    async def run() -> Any:
        async with scripted_cluster(broker) as found:
            return await work(found)

    return run_async(run())


@pytest.mark.parametrize("has_bulk", [False, True])
@pytest.mark.parametrize(("start", "until"), [(0, 1000), (0, 0), (17, 18), (300, 977), (999, 1000)])
def test_exactly_the_range(run_async: Run, has_bulk: bool, start: int, until: int) -> None:
    broker = broker_with(1000)
    broker.has_bulk = has_bulk

    async def work(found: ScriptedCluster) -> list[RecordRun]:
        return await collected(PullStream(found.client, QUEUE, start, until))

    runs = scenario(run_async, broker, work)
    assert offsets_of(runs) == list(range(start, until))
    codes = {command.code for command in broker.pulls()}
    expected = RequestCode.BULK_PULL if has_bulk else RequestCode.PULL_MESSAGE
    assert codes == ({expected} if until > start else set())


@pytest.mark.parametrize("size_max", [1, 700, 5_000, 1 << 20])
@pytest.mark.parametrize("file_count", [10, 37, 1_000])
def test_short_answers_leave_nothing_out(run_async: Run, size_max: int, file_count: int) -> None:
    broker = broker_with(500)
    broker.size_max, broker.file_count = size_max, file_count

    async def work(found: ScriptedCluster) -> list[RecordRun]:
        return await collected(PullStream(found.client, QUEUE, 3, 498))

    assert offsets_of(scenario(run_async, broker, work)) == list(range(3, 498))


def test_records_come_as_they_are_stored_and_become_columns(run_async: Run) -> None:
    broker = broker_with(100, tags="A")

    async def work(found: ScriptedCluster) -> list[RecordRun]:
        return await collected(PullStream(found.client, QUEUE, 10, 90, run_size_min=1 << 30))

    [run] = scenario(run_async, broker, work)
    assert (run.first_offset, run.count, run.until_offset) == (10, 80, 90)
    assert bytes(run.records) == b"".join(broker.records[10:90])
    found = run.columns(QUEUE, columns.VALUE | columns.QUEUE_OFFSET | columns.TAGS)
    data, offsets = found["value"]  # type: ignore[misc]
    assert bytes(data).startswith(b"body-10body-11")
    assert len(offsets) == 4 * 81
    assert bytes(found["tags"][0]) == b"A" * 80  # type: ignore[index]


@pytest.mark.parametrize("depth", [1, 4, 16])
def test_the_depth_is_the_number_of_requests_in_flight(run_async: Run, depth: int) -> None:
    broker = broker_with(640)
    broker.delay_turns = 200

    async def work(found: ScriptedCluster) -> list[int]:
        stream = PullStream(found.client, QUEUE, 0, 640, requests_max=depth)
        return offsets_of(await collected(stream))

    assert scenario(run_async, broker, work) == list(range(640))
    assert broker.under_way_most == depth


def test_a_caller_that_is_slow_holds_the_requests_up(run_async: Run) -> None:
    broker = broker_with(2_000, body=b"x" * 1_000)

    async def work(found: ScriptedCluster) -> None:
        stream = PullStream(found.client, QUEUE, 0, 2_000, buffer_size_max=200_000)
        async with stream:
            taken = 0
            async for run in stream:
                taken += run.count
                for _ in range(20):
                    await asyncio.sleep(0)
                ahead = max(int(pull.ext["queueOffset"]) for pull in broker.pulls()) + 32 - taken
                assert ahead * 1_100 < 200_000 + 4 * 36_000
        assert taken == 2_000

    scenario(run_async, broker, work)


def test_bulk_answers_grow_to_the_size_asked_for_and_stay_in_the_window(run_async: Run) -> None:
    broker = broker_with(4_000, body=b"x" * 1_000)
    broker.has_bulk = True

    async def work(found: ScriptedCluster) -> None:
        stream = PullStream(
            found.client, QUEUE, 0, 4_000, request_size=256 << 10, buffer_size_max=1 << 20
        )
        runs = await collected(stream)
        assert offsets_of(runs) == list(range(4_000))
        assert max(run.size for run in runs) > 200_000
        assert len(broker.pulls()) < 40
        assert broker.under_way_most <= 5

    scenario(run_async, broker, work)


def test_a_broker_that_lost_bulk_pulls_is_asked_for_plain_ones(run_async: Run) -> None:
    """Another broker may start at the same address."""
    broker = broker_with(200)
    broker.has_bulk = True

    async def work(found: ScriptedCluster) -> list[int]:
        assert (await found.client.capabilities.of(broker.address)).bulk_pull
        broker.has_bulk = False
        return offsets_of(await collected(PullStream(found.client, QUEUE, 0, 200)))

    assert scenario(run_async, broker, work) == list(range(200))
    asked = [command.code for command in broker.seen].count(RequestCode.CAPABILITIES)
    assert asked == 2, "once before, once after; then it is known"


def test_refusals_that_pass_are_tried_again(run_async: Run) -> None:
    broker = broker_with(300)
    left = {2: 3, 1: 2, 215: 2}

    def refuse(command: RemotingCommand) -> RemotingCommand | None:
        for code, times in left.items():
            if times:
                left[code] -= 1
                return command.reply(code, "not now")
        return None

    broker.before_pull = refuse

    async def work(found: ScriptedCluster) -> list[int]:
        return offsets_of(await collected(PullStream(found.client, QUEUE, 0, 300)))

    assert scenario(run_async, broker, work) == list(range(300))


@pytest.mark.parametrize(("code", "kind"), [(16, NoPermission), (29, RemoteError)])
def test_refusals_that_stay_are_raised(run_async: Run, code: int, kind: type[Exception]) -> None:
    broker = broker_with(300)
    broker.before_pull = lambda command: command.reply(code, "never")

    async def work(found: ScriptedCluster) -> None:
        with pytest.raises(kind, match="never"):
            await collected(PullStream(found.client, QUEUE, 0, 300))

    scenario(run_async, broker, work)


def test_what_expired_is_an_error_that_names_the_bounds(run_async: Run) -> None:
    broker = broker_with(100, first_offset=50)

    async def work(found: ScriptedCluster) -> None:
        with pytest.raises(OffsetOutOfRange) as raised:
            await collected(PullStream(found.client, QUEUE, 10, 120))
        error = raised.value
        assert (error.offset, error.min_offset, error.max_offset) == (10, 50, 150)
        skipping = PullStream(found.client, QUEUE, 10, 120, allow_gaps=True)
        assert offsets_of(await collected(skipping)) == list(range(50, 120))

    scenario(run_async, broker, work)


def test_what_is_not_written_is_waited_for_and_then_an_error(run_async: Run) -> None:
    broker = broker_with(100)

    async def work(found: ScriptedCluster) -> None:
        stream = PullStream(found.client, QUEUE, 90, 110, retry_limit_ms=100)
        async with stream:
            assert (await anext(stream)).until_offset == 100
            with pytest.raises(OffsetOutOfRange):
                await anext(stream)
        late = PullStream(found.client, QUEUE, 90, 110)
        async with late:
            assert (await anext(late)).until_offset == 100
            asyncio.get_running_loop().call_later(
                0.05, lambda: broker.add(*(stored(offset) for offset in range(100, 110)))
            )
            assert (await anext(late)).first_offset == 100

    scenario(run_async, broker, work)


def test_a_missing_record_is_not_passed_over_in_silence(run_async: Run) -> None:
    broker = broker_with(100)
    del broker.records[40]
    broker.records.append(stored(100))

    def holed(command: RemotingCommand) -> RemotingCommand | None:
        offset = int(command.ext["queueOffset"])
        if offset > 40:
            return None
        body = b"".join(stored(o) for o in range(offset, 60) if o != 40)
        return broker.answer(command, 0, 60, body)

    broker.before_pull = holed

    async def work(found: ScriptedCluster) -> None:
        with pytest.raises(OffsetOutOfRange, match="offset 40 "):
            await collected(PullStream(found.client, QUEUE, 30, 60))
        runs = await collected(PullStream(found.client, QUEUE, 30, 60, allow_gaps=True))
        assert [(run.first_offset, run.count) for run in runs] == [(30, 10), (41, 19)]

    scenario(run_async, broker, work)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\x00" * 200, MalformedRecord),
        (stored(3)[:-1], MalformedRecord),
        (stored(3) + b"\x00\x00\x00", MalformedRecord),
        (stored(2), MalformedRecord),
        (stored(4) + stored(3), MalformedRecord),
        (b"", UnexpectedAnswer),
    ],
)
def test_wrong_answers_of_a_broker_are_errors(
    run_async: Run, body: bytes, kind: type[Exception]
) -> None:
    broker = broker_with(10)
    broker.before_pull = lambda command: broker.answer(command, 0, 10, body)

    async def work(found: ScriptedCluster) -> None:
        with pytest.raises(kind):
            await collected(PullStream(found.client, QUEUE, 3, 9))

    scenario(run_async, broker, work)


def test_a_filter_leaves_gaps_and_loses_nothing(run_async: Run) -> None:
    broker = broker_with(0)
    tags = ["A" if number % 5 == 0 else "B" for number in range(400)]
    broker.records = [stored(number, tags=tag) for number, tag in enumerate(tags)]

    def filtered(command: RemotingCommand) -> RemotingCommand:
        offset, count = int(command.ext["queueOffset"]), int(command.ext["maxMsgNums"])
        assert command.ext["subscription"] == "A"
        found, at = [], offset
        while at < min(offset + 80, 400) and len(found) < count:
            if tags[at] == "A":
                found.append(broker.records[at])
            at += 1
        return broker.answer(command, 0 if found else 20, at, b"".join(found))

    broker.before_pull = filtered
    broker.has_bulk = True

    async def work(found: ScriptedCluster) -> list[int]:
        subscription = parse_tag_expression("T", "A")
        stream = PullStream(found.client, QUEUE, 1, 399, subscription=subscription)
        return offsets_of(await collected(stream))

    assert scenario(run_async, broker, work) == list(range(5, 399, 5))


def test_a_tail_follows_the_queue(run_async: Run) -> None:
    broker = broker_with(100)

    async def work(found: ScriptedCluster) -> None:
        seen: list[int] = []
        async with PullStream(found.client, QUEUE, 40) as stream:
            while len(seen) < 60:
                seen += offsets_of([await anext(stream)])
            for offset in range(100, 110):
                waiting = asyncio.ensure_future(anext(stream))
                for _ in range(5):
                    await asyncio.sleep(0)
                broker.add(stored(offset))
                seen += offsets_of([await waiting])
        assert seen == list(range(40, 110))
        held = [pull for pull in broker.pulls() if int(pull.ext["sysFlag"]) & 2]
        assert len(held) >= 10

    scenario(run_async, broker, work)


def test_reads_go_on_at_the_slave(run_async: Run) -> None:
    master, slave = broker_with(400), broker_with(400)

    async def run() -> None:
        async with scripted_cluster(master, slave) as found:
            async with PullStream(
                found.client, QUEUE, 0, 400, requests_max=2, buffer_size_max=10_000
            ) as stream:
                offsets = offsets_of([await anext(stream)])
                await master.stop()
                async for run in stream:
                    offsets += offsets_of([run])
            assert offsets == list(range(400))
            assert slave.pulls()
            assert not any(int(pull.ext["sysFlag"]) & 1 for pull in slave.pulls())

    run_async(run())


@pytest.mark.parametrize("first", [0, 150], ids=["behind", "without the beginning"])
def test_what_a_slave_does_not_have_is_not_lost(run_async: Run, first: int) -> None:
    """Only the master knows what is gone: it may come back with all of it."""
    master = broker_with(400)
    slave = broker_with(350 - first, first)

    async def run() -> None:
        async with scripted_cluster(master, slave) as found:
            await master.stop()
            impatient = PullStream(found.client, QUEUE, 100, 400, retry_limit_ms=300)
            with pytest.raises(ServiceNotAvailable, match=r"at its master, which is unreachable"):
                await collected(impatient)

    run_async(run())


def test_the_broker_suggests_where_to_read(run_async: Run) -> None:
    master, slave = broker_with(400), broker_with(400)
    master.suggested_id = 1
    slave.suggested_id = 1

    async def run() -> None:
        async with scripted_cluster(master, slave) as found:
            stream = PullStream(found.client, QUEUE, 0, 400)
            assert offsets_of(await collected(stream)) == list(range(400))
            assert len(master.pulls()) == 1
            assert len(slave.pulls()) >= 11

    run_async(run())


def test_no_broker_to_read_from(run_async: Run) -> None:
    broker = broker_with(10)

    async def work(found: ScriptedCluster) -> None:
        await broker.stop()
        with pytest.raises(ConnectionLost):
            await collected(PullStream(found.client, QUEUE, 0, 10, retry_limit_ms=50))

    scenario(run_async, broker, work)


def test_closing_gives_up_what_is_under_way(run_async: Run) -> None:
    broker = broker_with(1_000)
    broker.delay_s = 30.0

    async def work(found: ScriptedCluster) -> None:
        stream = PullStream(found.client, QUEUE, 0, 1_000)
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        await stream.close()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    scenario(run_async, broker, work)


@pytest.mark.parametrize(("start", "until"), [(-1, 3), (4, 3)])
def test_ranges_that_are_none(run_async: Run, start: int, until: int) -> None:
    async def work(found: ScriptedCluster) -> None:
        with pytest.raises(InvalidArgument):
            PullStream(found.client, QUEUE, start, until)

    scenario(run_async, broker_with(1), work)
