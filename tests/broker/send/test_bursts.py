"""Sends that arrive together are stored and answered as if each had arrived alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core.broker.send.bursts import SendBursts
from broker_core.codec.native import codec_backend
from broker_core.codec.records.record_layout import (
    BORN_HOST_AT,
    MAGIC_AT,
    MAGIC_BLANK,
    STORE_TIMESTAMP_AT,
)
from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import ONEWAY_FLAG, RemotingCommand
from broker_core.config import RemotingLimits
from broker_core.errors import MalformedBatch
from broker_core.protocol_codes import PutStatus, ResponseCode
from tests.broker.running_broker import Asker, broker_config, records, running, until
from tests.codec.wire_frames import frame_bytes

Run = Callable[..., Any]
SYNC = {"flushDiskType": "SYNC_FLUSH"}
ASYNC = {"flushDiskType": "ASYNC_FLUSH"}

pytestmark = pytest.mark.skipif(
    codec_backend() == "python", reason="without the native codec every send comes alone"
)


def send(opaque: int, topic: str = "T", body: bytes = b"", **fields: Any) -> RemotingCommand:
    """SEND_MESSAGE_V2 with a key of its own."""
    text = fields.pop("text", f"UNIQ_KEY\x01K{opaque}\x02WAIT\x01true\x02")
    flag = fields.pop("oneway", 0)
    ext = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": text, "j": "0", "k": "false", "m": "false", "n": "broker-a",
        **{name: str(value) for name, value in fields.items()},
    }  # fmt: skip
    return RemotingCommand(310, ext, body or b"body %d" % opaque, opaque=opaque, flag=flag)


async def exchange(
    asker: Asker, data: bytes, count: int, pieces: int = 1
) -> dict[int, RemotingCommand]:
    """Write everything in so many pieces and wait for the answers, by request id."""
    reader, writer = await asyncio.open_connection("127.0.0.1", asker.broker.port)
    parser = FrameParser()
    found: dict[int, RemotingCommand] = {}
    size = -(-len(data) // pieces)
    for start in range(0, len(data), size):
        writer.write(data[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)
    while len(found) < count:
        parser.receive_data(await asyncio.wait_for(reader.read(1 << 16), 120))
        while (answer := parser.next_command()) is not None:
            assert answer.opaque not in found
            found[answer.opaque] = answer
    writer.close()
    await writer.wait_closed()
    return found


def joined(*commands: RemotingCommand) -> bytes:
    return b"".join(map(frame_bytes, commands))


async def stored(asker: Asker, topic: str, queue: int) -> list[Any]:
    """Everything in a queue, by single pulls."""
    found: list[Any] = []
    while True:
        answer = await asker.pull(topic, queue, len(found))
        if answer.code != 0:
            return found
        found += records(answer)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that each burst took."""
    taken: list[int] = []
    take = SendBursts.take

    def counting(self: SendBursts, connection: Any, data: bytes, start: int, most: int) -> int:
        end = take(self, connection, data, start, most)
        if end > start:
            taken.append(end - start)
        return end

    monkeypatch.setattr(SendBursts, "take", counting)
    return taken


@pytest.mark.parametrize("pieces", [1, 37])
@pytest.mark.parametrize("flush", [SYNC, ASYNC], ids=["sync", "async"])
def test_all_sends_of_a_wake_up(
    tmp_path: Path, run_async: Run, counted: list[int], flush: dict[str, str], pieces: int
) -> None:
    async def scenario() -> None:
        # The log's files are small: some end in the middle of a burst.
        async with running(broker_config(tmp_path, **flush)) as asker:
            await asker.make_topic("T")
            await asker.send()
            body = bytes(3_000)
            sends = [send(number, e=number % 4, body=body) for number in range(1, 1_001)]
            answers = await exchange(asker, joined(*sends), 1_000, pieces)
            ids = set()
            kept = {queue: await stored(asker, "T", queue) for queue in range(4)}
            assert [len(found) for found in kept.values()] == [251, 250, 250, 250]
            for opaque, answer in answers.items():
                assert answer.code == 0, answer.remark
                queue, offset = int(answer.ext["queueId"]), int(answer.ext["queueOffset"])
                assert queue == opaque % 4
                message = kept[queue][offset]
                assert message.properties["UNIQ_KEY"] == f"K{opaque}"
                assert answer.ext["transactionId"] == f"K{opaque}"
                assert message.message_id == answer.ext["msgId"]
                assert (message.body, message.queue_offset) == (body, offset)
                assert message.properties["CLUSTER"] == "DefaultCluster"
                ids.add(answer.ext["msgId"])
            assert len(ids) == 1_000
            # In order of arrival within each queue.
            keys = [message.properties["UNIQ_KEY"] for message in kept[1]]
            assert keys == [f"K{number}" for number in range(1, 1_001, 4)]
            totals = asker.broker.context.store.stats()
            assert totals["put_statuses"] == {"PUT_OK": 1_001}
            assert asker.broker.context.stats.stats()["topic_put"]["T"] == {
                "messages": 1_001, "calls": 1_001, "bytes": totals["put_bytes"],
            }  # fmt: skip
            assert sum(counted) > sum(len(frame_bytes(command)) for command in sends) // 2

    run_async(scenario())


def test_other_requests_between_the_sends_are_answered(
    tmp_path: Path, run_async: Run, counted: list[int]
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **ASYNC)) as asker:
            await asker.make_topic("T")
            await asker.make_topic("U", queues=1)
            await asker.send()
            await asker.send("U")
            commands = [
                send(1), send(2), send(3, "U"), send(4, e=9), send(5, "Unknown"),
                send(6, text="UNIQ_KEY\x01K6\x02DELAY\x011\x02"), send(7, "SCHEDULE_TOPIC_XXXX"),
                RemotingCommand(99_999, opaque=8), send(9, h=5), send(10, oneway=ONEWAY_FLAG),
                send(11, e=-1), send(12, f=4), send(13, text="UNIQ_KEY\x01K13\x02x"),
                send(14, body=bytes(5 << 20)), send(15),
            ]  # fmt: skip
            answers = await exchange(asker, joined(*commands), 14)
            assert 10 not in answers
            codes = {opaque: answer.code for opaque, answer in answers.items()}
            assert codes[4] != 0
            assert codes[7] == ResponseCode.NO_PERMISSION
            assert codes[8] == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert codes[14] == ResponseCode.MESSAGE_ILLEGAL
            for opaque in (1, 2, 3, 5, 6, 9, 11, 12, 13, 15):
                assert codes[opaque] == 0, (opaque, answers[opaque].remark)
            bodies = [message.body for message in await stored(asker, "T", 0)]
            assert {b"body 1", b"body 2", b"body 9", b"body 10", b"body 15"} <= set(bodies)
            assert [message.body for message in await stored(asker, "U", 0)][1:] == [b"body 3"]
            assert counted

    run_async(scenario())


@pytest.mark.parametrize("flush", [SYNC, ASYNC], ids=["sync", "async"])
def test_many_topics_share_an_append(
    tmp_path: Path, run_async: Run, counted: list[int], flush: dict[str, str]
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **flush)) as asker:
            topics = [f"Topic-{number}" for number in range(30)]
            for topic in topics:
                await asker.make_topic(topic, queues=2)
            for topic in topics:
                await asker.send(topic)
            context = asker.broker.context
            before = context.stats.stats()["topic_put"]
            # The log's files are small: some end in the middle of a burst.
            sends = [
                send(number, topics[number % 30], bytes(1_000 + number), e=number % 7 % 2)
                for number in range(1, 3_001)
            ]
            answers = await exchange(asker, joined(*sends), 3_000)
            counts = dict.fromkeys(topics, 0)
            for topic in topics:
                for queue in range(2):
                    kept = await stored(asker, topic, queue)
                    for offset, message in enumerate(kept[1 - queue :], 1 - queue):
                        opaque = len(message.body) - 1_000
                        answer = answers[opaque]
                        assert (answer.code, topics[opaque % 30], opaque % 7 % 2) == (
                            0, topic, queue,
                        )  # fmt: skip
                        assert answer.ext["queueId"] == str(queue)
                        assert answer.ext["queueOffset"] == str(offset) == str(message.queue_offset)
                        assert answer.ext["msgId"] == message.message_id
                        assert message.properties["UNIQ_KEY"] == f"K{opaque}"
                        counts[topic] += 1
                    order = [len(message.body) for message in kept[1 - queue :]]
                    assert order == sorted(order)
            assert sum(counts.values()) == 3_000
            after = context.stats.stats()["topic_put"]
            for topic in topics:
                for name in ("messages", "calls"):
                    assert after[topic][name] - before[topic][name] == counts[topic]
            totals = context.store.stats()
            assert sum(one["bytes"] for one in after.values()) == totals["put_bytes"]
            assert totals["put_statuses"] == {"PUT_OK": 3_030}
            assert totals["topic_messages"] == {topic: counts[topic] + 1 for topic in topics}
            assert sum(counted) > sum(len(frame_bytes(command)) for command in sends) // 2
            assert len(counted) < 300

    run_async(scenario())


TOPICS = ("A", "B", "Longer", "C")


def mixed(rng: Random, count: int) -> list[RemotingCommand]:
    """Sends to a few topics, some of which need a path of their own."""
    commands = []
    for opaque in range(1, count + 1):
        topic = rng.choice(TOPICS)
        fields: dict[str, Any] = {"e": rng.choice([0, 0, 1, 2, 3])}
        # The last one is answered.
        kind = rng.random() if opaque < count else 1
        if kind < 0.05:
            fields["text"] = f"UNIQ_KEY\x01K{opaque}\x02DELAY\x0118\x02"
        elif kind < 0.1:
            fields["h"] = 5
        elif kind < 0.13:
            topic = rng.choice(["NoWrite", "SCHEDULE_TOPIC_XXXX"])
        elif kind < 0.16:
            fields["e"] = 9
        elif kind < 0.19:
            fields["oneway"] = ONEWAY_FLAG
        elif kind < 0.22:
            fields["f"] = rng.choice([4, 1, 8])
        body = rng.randbytes(rng.choice([1, 10, 200, 3_000]))
        commands.append(send(opaque, topic, body, **fields))
    return commands


def masked(data: bytes) -> bytes:
    """A log without what no two brokers have in common: times of the store, and ports."""
    log, at = bytearray(data), 0
    while at < len(log):
        size, magic = (int.from_bytes(log[at + n : at + n + 4], "big") for n in (0, MAGIC_AT))
        if magic != MAGIC_BLANK:
            log[at + BORN_HOST_AT + 4 : at + STORE_TIMESTAMP_AT + 8] = bytes(12)
            log[at + STORE_TIMESTAMP_AT + 12 : at + STORE_TIMESTAMP_AT + 16] = bytes(4)
            # The checksum of the record.
            log[at + size - 11 : at + size - 1] = bytes(10)
        at += size
    return bytes(log)


async def outcome(
    root: Path, bursts: list[list[RemotingCommand]]
) -> tuple[bytes, list[dict[int, Any]], Any]:
    """The log, the answers and the counts of a broker that was sent these bursts."""
    found = []
    async with running(broker_config(root, **ASYNC)) as asker:
        for topic in TOPICS:
            await asker.make_topic(topic)
            await asker.send(topic)
        await asker.make_topic("NoWrite", perm=4)
        for commands in bursts:
            count = sum(not command.is_oneway for command in commands)
            answers = await exchange(asker, joined(*commands), count)
            for one in answers.values():
                # The address, then the position.
                if "msgId" in one.ext:
                    one.ext["msgId"] = one.ext["msgId"][16:]
            found.append({key: (one.code, one.remark, one.ext) for key, one in answers.items()})
        context = asker.broker.context
        end = context.store.log_range[1]
        counts = context.stats.stats(), context.store.stats()["topic_messages"]
    files = sorted((root / "commitlog").iterdir())
    return masked(b"".join(file.read_bytes() for file in files)[:end]), found, counts


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2**32 - 1))
def test_together_or_alone_is_the_same(run_async: Run, counted: list[int], seed: int) -> None:
    """The bytes of the log, the answers and the counts, for mixes of topics and invalid sends."""
    rng = Random(seed)
    bursts = [mixed(rng, rng.randrange(1, 60)) for _ in range(6)]
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        together = run_async(outcome(Path(one), bursts))
        assert counted
        counted.clear()
        with pytest.MonkeyPatch.context() as patched:
            # No topic is ready for a burst.
            patched.setattr(SendBursts, "note_ready", lambda *_: None)
            assert run_async(outcome(Path(other), bursts)) == together
            assert not counted


def test_a_permission_that_was_removed_counts_at_once(
    tmp_path: Path, run_async: Run, counted: list[int]
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **ASYNC)) as asker:
            await asker.make_topic("T")
            await asker.send()
            assert all(
                answer.code == 0
                for answer in (await exchange(asker, joined(send(1), send(2)), 2)).values()
            )
            assert counted
            counted.clear()
            await asker.make_topic("T", perm=4)
            answers = await exchange(asker, joined(send(3), send(4)), 2)
            assert {answer.code for answer in answers.values()} == {ResponseCode.NO_PERMISSION}
            await asker.make_topic("T", queues=1)
            answers = await exchange(asker, joined(send(5), send(6, e=1), send(7)), 3)
            assert [answers[number].code for number in (5, 7)] == [0, 0]
            assert answers[6].code != 0
            asker.broker.features.send.hooks.add(before=lambda context: None)
            counted.clear()
            answers = await exchange(asker, joined(send(8), send(9)), 2)
            assert {answer.code for answer in answers.values()} == {0}
            assert not counted

    run_async(scenario())


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT),
        (PutStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE),
        (PutStatus.UNKNOWN_ERROR, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_an_acknowledgement_that_fails_is_answered_with_its_code(
    tmp_path: Path, run_async: Run, counted: list[int], status: PutStatus, code: int
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **SYNC)) as asker:
            await asker.make_topic("T")
            await asker.send()
            store = asker.broker.context.store
            held: list[Callable[[PutStatus], object]] = []
            store.writes.acks.puts.when = lambda position, callback: held.append(callback)
            asking = asyncio.ensure_future(exchange(asker, joined(send(1), send(2)), 2))
            await until(lambda: len(held) > 0)
            (connection,) = (
                one for one in asker.broker._server.connections if one.load.requests == 2
            )
            assert connection.load.size > 2_000
            for callback in held:
                callback(status)
            assert (connection.load.requests, connection.load.size) == (0, 0)
            answers = await asking
            for opaque, answer in answers.items():
                assert answer.code == code
                assert status.name in (answer.remark or "")
                if status.stored:
                    assert answer.ext["transactionId"] == f"K{opaque}"
                    assert answer.ext["queueOffset"] == str(opaque)
                else:
                    assert "msgId" not in answer.ext
            assert counted

    run_async(scenario())


def test_a_bad_send_leaves_nothing_behind_the_log(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **ASYNC)) as asker:
            await asker.make_topic("T")
            await asker.send()
            text = f"UNIQ_KEY\x01K3\x02long\x01{'x' * 32_740}\x02"
            before = asker.broker.context.store.log_range[1]
            log = asker.broker.context.store._opened.log
            bursts: list[bytes] = []
            append = log.append_rows

            def watched(*arguments: Any) -> Any:
                try:
                    return append(*arguments)
                except MalformedBatch:
                    segment = log.segments.last
                    bursts.append(bytes(segment.target[segment.wrote :]))
                    raise

            log.append_rows = watched
            sends = joined(send(1), send(2), send(3, text=text), send(4))
            answers = await exchange(asker, sends, 4)
            assert [answers[number].code for number in (1, 2, 4)] == [0, 0, 0]
            assert answers[3].code == ResponseCode.MESSAGE_ILLEGAL
            assert before < log.position
            assert bursts
            assert not any(bursts[0])
            bodies = [message.body for message in await stored(asker, "T", 0)]
            assert bodies[1:] == [b"body 1", b"body 2", b"body 4"]

    run_async(scenario())


def test_no_more_requests_than_allowed(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        limits = RemotingLimits(connection_requests_max=10)
        config = broker_config(tmp_path, **SYNC)
        async with running(config, remoting_limits=limits) as asker:
            await asker.make_topic("T")
            await asker.send()
            sends = [send(number) for number in range(1, 41)]
            answers = await exchange(asker, joined(*sends), 40)
            codes = [answers[number].code for number in range(1, 41)]
            assert codes[:10] == [0] * 10
            assert set(codes) == {0, ResponseCode.SYSTEM_BUSY}
            assert len(await stored(asker, "T", 0)) == 1 + codes.count(0)

    run_async(scenario())
