"""Our pull and push consumers against real brokers."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_core.client.connection.instance import ClientInstance
from broker_core.client.dead_letters.dead_letters import DeadLetters
from broker_core.client.dead_letters.writer import BadMessage, DeadLetterWriter
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.pull.result import PullStatus
from broker_core.client.push.types import ConsumeContext, ConsumeStatus
from broker_core.codec.records import column_names as columns
from broker_core.codec.records.message_record import COMPRESSED
from broker_core.codec.wire.bodies.heartbeat_data import (
    BROADCASTING,
    FROM_FIRST_OFFSET,
    FROM_TIMESTAMP,
)
from broker_core.errors import OffsetOutOfRange
from tests.interop.clusters import KINDS, run_or_skip
from tests.interop.consumer_ground import Collected, Ground, bodies, ground, patient_config, until
from tests.interop.peer_releases import COMPLETE
from tests.interop.slow_link import slow_link

pytestmark = pytest.mark.interop

Run = Callable[..., Any]


def play(run_async: Run, kind: str, tmp_path: Path, *checks: Any, **options: Any) -> None:
    async def scenario() -> None:
        async with ground(kind, tmp_path, **options) as found:
            for check in checks:
                await check(found)

    run_or_skip(run_async, scenario(), limit_s=400)


# Pulling


@pytest.mark.parametrize("kind", KINDS)
def test_pulls(run_async: Run, tmp_path: Path, kind: str) -> None:
    checks = (
        pull_statuses, long_poll, tags_are_compared_exactly, compressed_bodies, progress_is_kept,
    )  # fmt: skip
    play(run_async, kind, tmp_path, *checks)


async def pull_statuses(found: Ground) -> None:
    [queue] = await found.topic("Statuses", 1)
    empty = await found.puller.pull(queue, 0)
    assert (empty.status, empty.next_offset) == (PullStatus.NO_NEW_MESSAGE, 0)
    beyond = await found.puller.pull(queue, 7)
    assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 0)
    await found.send("Statuses", bodies(50), queue, tags="A", keys="k")
    await found.readable(queue, 50)
    first = await found.puller.pull(queue, 0, max_count=10)
    assert (first.status, first.next_offset, first.max_offset) == (PullStatus.FOUND, 10, 50)
    assert [m.queue_offset for m in first.messages] == list(range(10))
    assert {m.body for m in first.messages} <= set(bodies(50))
    assert {(m.topic, m.tags, m.keys) for m in first.messages} == {("Statuses", "A", "k")}
    end = await found.puller.pull(queue, 50)
    assert (end.status, end.next_offset) == (PullStatus.NO_NEW_MESSAGE, 50)
    past = await found.puller.pull(queue, 51)
    assert (past.status, past.next_offset) == (PullStatus.OFFSET_ILLEGAL, 50)
    none = await found.puller.pull(queue, 0, expression="Other")
    assert none.status is PullStatus.NO_MATCHED_MESSAGE
    assert none.next_offset > 0


async def long_poll(found: Ground) -> None:
    [queue] = await found.topic("Held", 1)
    loop = asyncio.get_running_loop()
    # By itself the broker would answer long after this test has given up.
    held = asyncio.ensure_future(found.puller.pull(queue, 0, suspend_ms=3_600_000))
    await asyncio.wait((held,), timeout=0.5)
    assert not held.done(), "the broker holds the request"
    await found.send("Held", [b"wake"], queue)
    result = await held
    assert [m.body for m in result.messages] == [b"wake"]
    started = loop.time()
    nothing = await found.puller.pull(queue, 1, suspend_ms=1_000)
    assert nothing.status is PullStatus.NO_NEW_MESSAGE
    assert loop.time() - started > 0.9


async def tags_are_compared_exactly(found: Ground) -> None:
    """`Aa` and `BB` have the same hash, so the broker lets both through."""
    [queue] = await found.topic("Tags", 1)
    for tag in ("Aa", "BB", "C", "标签"):
        await found.send("Tags", [tag.encode()], queue, tags=tag)
    await found.readable(queue, 4)
    for expression, wanted in (
        ("Aa", ["Aa"]),
        ("Aa || C", ["Aa", "C"]),
        ("*", ["Aa", "BB", "C", "标签"]),
        ("标签", ["标签"]),
    ):
        result = await found.puller.pull(queue, 0, expression=expression)
        assert [m.tags for m in result.messages] == wanted
    raw = await found.puller.pull(queue, 0, expression="Aa")
    assert raw.next_offset == 4
    async with found.puller.stream(queue, 0, 4, expression="Aa || 标签") as stream:
        assert [m.tags async for m in stream.messages()] == ["Aa", "标签"]


async def compressed_bodies(found: Ground) -> None:
    [queue] = await found.topic("Large", 1)
    plain = b"0123456789" * 10_000
    await found.send("Large", [plain], queue)
    await found.readable(queue, 1)
    [message] = (await found.puller.pull(queue, 0)).messages
    assert message.body == plain
    assert message.record.sys_flag & COMPRESSED
    assert zlib.decompress(message.record.body) == plain


async def progress_is_kept(found: Ground) -> None:
    [queue] = await found.topic("Progress", 1)
    await found.send("Progress", bodies(5), queue)
    await found.readable(queue, 5)
    await found.puller.commit(queue, 3)
    assert await found.puller.committed(queue) == 3
    assert await PullConsumer(found.client, "OTHERS").committed(queue) in (None, 0)
    assert await found.puller.min_offset(queue) == 0
    middle = (await found.puller.pull(queue, 2, max_count=1)).messages[0].store_timestamp
    assert await found.puller.offset_by_time(queue, middle) <= 2
    assert await found.puller.offset_by_time(queue, 1) == 0


# Streams


@pytest.mark.parametrize("kind", KINDS)
def test_streams(run_async: Run, tmp_path: Path, kind: str, summary_lines: list[str]) -> None:
    async def pipelined(found: Ground) -> None:
        one, many = await pipelining_hides_the_network(found)
        summary_lines.append(
            f"pulls of one queue over a link of 10 ms each way, {kind}: at most {one} on the way "
            f"one at a time, {many} pipelined"
        )
        if kind.startswith("apache-"):
            assert (one, many >= 5) == (1, True), (one, many)

    play(run_async, kind, tmp_path, exact_ranges, a_tail, pipelined)


async def exact_ranges(found: Ground) -> None:
    [queue, other] = await found.topic("Ranges", 2)
    address = found.client.routes.broker_address(queue.broker_name)
    capabilities = await found.client.capabilities.of(address)
    assert capabilities.bulk_pull is (not found.kind.startswith("apache-"))
    sent = bodies(2_500)
    # Records of another queue lie between them, so that they are no neighbours in the log.
    for first in range(0, 2_500, 500):
        part = sent[first : first + 500]
        await asyncio.gather(
            found.producer.send_batch([OutgoingMessage("Ranges", b) for b in part], queue=queue),
            found.producer.send_batch([OutgoingMessage("Ranges", b) for b in part], queue=other),
        )
    await found.readable(queue, 2_500)
    for start, until_offset in ((0, 2_500), (123, 2_222), (999, 1_001), (7, 7)):
        expected = start
        values = b""
        async with found.puller.stream(queue, start, until_offset, run_size_min=1 << 16) as stream:
            async for run in stream:
                assert run.first_offset == expected
                expected = run.until_offset
                values += bytes(run.columns(queue, columns.VALUE)["value"][0])  # type: ignore[index]
        assert expected == until_offset
        assert values == b"".join(sent[start:until_offset])
    with pytest.raises(OffsetOutOfRange):
        async with found.puller.stream(queue, 2_400, 2_600, retry_limit_ms=500) as stream:
            async for _ in stream:
                pass


async def a_tail(found: Ground) -> None:
    [queue] = await found.topic("Tail", 1)
    await found.send("Tail", bodies(100), queue)
    seen: list[bytes] = []
    async with found.puller.stream(queue, 0) as stream:
        messages = stream.messages()
        while len(seen) < 100:
            seen.append((await anext(messages)).body)
        late = asyncio.ensure_future(anext(messages))
        await found.send("Tail", [b"late"], queue)
        assert (await late).body == b"late"
    assert sorted(seen) == sorted(bodies(100))


async def pipelining_hides_the_network(found: Ground) -> tuple[int, int]:
    """How many pulls were on the way at most: one at a time, and as a stream."""
    count = 3_200
    topic = "Pipelined"
    [queue] = await found.topic(topic, 1)
    for _ in range(count // 400):
        batch = [OutgoingMessage(topic, b"x" * 200) for _ in range(400)]
        await found.producer.send_batch(batch, queue=queue)
    await found.readable(queue, count)
    address = found.client.routes.broker_address(queue.broker_name)
    async with (
        slow_link(address, 10) as far,
        found.new_client(address_rewrite={address: far}) as client,
    ):
        puller = PullConsumer(client, "FAR")
        await puller.pull(queue, 0)
        under_way = UnderWay(client)
        offset, got = 0, 0
        while offset < count:
            result = await puller.pull(queue, offset)
            offset, got = result.next_offset, got + len(result.messages)
        one = under_way.most_since_last()
        async with puller.stream(queue, 0, count) as stream:
            async for _ in stream.messages():
                got += 1
        many = under_way.most_since_last()
        assert got == 2 * count
        return one, many


class UnderWay:
    """How many requests of a client are on the way at the same time."""

    def __init__(self, client: ClientInstance) -> None:
        self._now = 0
        self._most = 0
        request = client.remoting.request

        async def counted(*arguments: Any, **named: Any) -> Any:
            self._now += 1
            self._most = max(self._most, self._now)
            try:
                return await request(*arguments, **named)
            finally:
                self._now -= 1

        client.remoting.request = counted  # type: ignore[method-assign]

    def most_since_last(self) -> int:
        found, self._most = self._most, self._now
        return found


# Push consumers


@pytest.mark.parametrize("kind", KINDS)
def test_push(run_async: Run, tmp_path: Path, kind: str) -> None:
    checks = (
        concurrent_and_progress, failed_ones_come_again_and_die, from_timestamp, orderly,
        orderly_gives_up, broadcasting, dead_letters_are_replayed, bad_messages_are_written_once,
    )  # fmt: skip
    play(run_async, kind, tmp_path, *checks)


async def concurrent_and_progress(found: Ground) -> None:
    queues = await found.topic("Push", 4)
    await found.send("Push", bodies(200), tags="A")
    await found.send("Push", bodies(50, "other"), tags="B")
    listener = Collected()
    first = await found.push("PUSH", "Push", listener, "A", from_where=FROM_FIRST_OFFSET)
    await listener.until_bodies(bodies(200))
    await found.send("Push", [b"live"], tags="A")
    await listener.until_bodies([b"live"])
    assert sorted(listener.bodies()) == sorted([*bodies(200), b"live"]), "each once, no other tag"
    assert listener.running_most > 1
    reader = PullConsumer(found.client, "PUSH")
    ends = {queue: await reader.max_offset(queue) for queue in queues}
    # The last ones of a queue have other tags: the broker may still be looking past them.
    await until(
        lambda: {queue: first.keeper.noted(queue) for queue in queues} == ends, "all looked at"
    )
    await first.stop()
    for queue in queues:
        # Those of other tags count as done as well, as far as the broker looked past them.
        assert await reader.committed(queue) == ends[queue]
    again = Collected()
    await found.push("PUSH", "Push", again, "A")
    await found.send("Push", [b"second run"], tags="A")
    await again.until_bodies([b"second run"])
    assert again.bodies() == [b"second run"]


async def failed_ones_come_again_and_die(found: Ground) -> None:
    await found.topic("Retry", 1)

    def verdict(message: ReceivedMessage, context: ConsumeContext) -> ConsumeStatus | None:
        context.delay_level = 1
        if message.body == b"raises":
            raise ValueError("on purpose")
        if message.body == b"later" and message.reconsume_times == 0:
            return ConsumeStatus.LATER
        return None

    listener = Collected(verdict)
    consumer = await found.push(
        "RETRY", "Retry", listener, from_where=FROM_FIRST_OFFSET, max_reconsume_times=2
    )
    await found.send("Retry", [b"later", b"raises", b"fine"], tags="T", keys="K")

    def times(body: bytes) -> list[int]:
        return [m.record.reconsume_times for m in listener.messages if m.body == body]

    await until(lambda: times(b"later") == [0, 1], "a retry")
    await until(lambda: times(b"raises") == [0, 1, 2], "all retries", 90)
    assert times(b"fine") == [0]
    first, retried = (m for m in listener.messages if m.body == b"later")
    assert (retried.topic, retried.tags, retried.keys) == ("Retry", "T", "K")
    assert retried.queue.topic == "%RETRY%RETRY"
    assert retried.message_id == first.message_id
    assert retried.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id

    async def is_dead() -> bool:
        try:
            [queue] = await found.puller.queues("%DLQ%RETRY")
        except found.missing:
            return False
        return [m.body for m in (await found.puller.pull(queue, 0)).messages] == [b"raises"]

    await found.cluster.until(is_dead)
    await consumer.stop()


async def from_timestamp(found: Ground) -> None:
    [queue] = await found.topic("Since", 1)
    stamps: list[int] = []
    # One after the other, in milliseconds of their own: for a time between two messages 4.9 gives
    # the nearer one, later brokers the next.
    for number, body in enumerate([*bodies(3, "old"), *bodies(3, "new")]):
        await until(lambda: not stamps or found.client.clock.wall_ms() > stamps[-1] + 5)
        await found.send("Since", [body], queue)
        await found.readable(queue, number + 1)
        [message] = (await found.puller.pull(queue, number)).messages
        stamps.append(message.store_timestamp)
    assert await found.puller.offset_by_time(queue, stamps[3]) == 3
    listener = Collected()
    # Broadcasting, because brokers make progress up for new groups of young queues.
    await found.push(
        "SINCE", "Since", listener, model=BROADCASTING,
        from_where=FROM_TIMESTAMP, from_timestamp_ms=stamps[3],
    )  # fmt: skip
    await listener.until_bodies(bodies(3, "new"))
    assert sorted(listener.bodies()) == bodies(3, "new")


async def orderly(found: Ground) -> None:
    queues = await found.topic("Orderly", 3)
    for queue in queues:
        for body in bodies(30, f"q{queue.queue_id}-"):
            await found.producer.send("Orderly", body, queue=queue)
    failed: set[bytes] = set()
    under_way: set[int] = set()

    async def listen(messages: Sequence[ReceivedMessage], context: ConsumeContext) -> Any:
        queue_id = context.queue.queue_id
        assert queue_id not in under_way, "never twice at a time for a queue"
        under_way.add(queue_id)
        await asyncio.sleep(0)
        under_way.discard(queue_id)
        body = messages[0].body
        if body.endswith(b"-7") and body not in failed:
            failed.add(body)
            context.suspend_ms = 100
            return ConsumeStatus.LATER
        seen.append((queue_id, body))
        return None

    seen: list[tuple[int, bytes]] = []
    consumer = await found.push(
        "ORDERLY", "Orderly", listen, orderly=True, from_where=FROM_FIRST_OFFSET
    )
    await until(lambda: len(seen) >= 90, "90 messages")
    for queue in queues:
        expected = bodies(30, f"q{queue.queue_id}-")
        assert [body for queue_id, body in seen if queue_id == queue.queue_id] == expected
    assert len(failed) == 3
    await consumer.stop()
    reader = PullConsumer(found.client, "ORDERLY")
    assert [await reader.committed(queue) for queue in queues] == [30, 30, 30]


async def orderly_gives_up(found: Ground) -> None:
    """Too often tried: into the dead-letter queue, and on with the next."""
    [queue] = await found.topic("Stuck", 1)
    await found.producer.send("Stuck", b"bad", queue=queue)
    await found.producer.send("Stuck", b"good", queue=queue)

    def verdict(message: ReceivedMessage, context: ConsumeContext) -> ConsumeStatus | None:
        context.suspend_ms = 10
        return ConsumeStatus.LATER if message.body == b"bad" else None

    listener = Collected(verdict)
    await found.push(
        "STUCK", "Stuck", listener,
        orderly=True, max_reconsume_times=2, from_where=FROM_FIRST_OFFSET,
    )  # fmt: skip
    await listener.until_bodies([b"good"])
    assert listener.bodies() == [b"bad", b"bad", b"bad", b"good"]

    async def is_dead() -> bool:
        try:
            [dead] = await found.puller.queues("%DLQ%STUCK")
        except found.missing:
            return False
        return [m.body for m in (await found.puller.pull(dead, 0)).messages] == [b"bad"]

    await found.cluster.until(is_dead)


async def broadcasting(found: Ground) -> None:
    await found.topic("Broadcast", 3)
    directory = str(found.directory / "offsets")
    first, second = Collected(), Collected()
    settings = {"model": BROADCASTING, "from_where": FROM_FIRST_OFFSET}
    kept = await found.push(
        "BROADCAST", "Broadcast", first, offsets_directory=directory, **settings
    )
    await found.push("BROADCAST", "Broadcast", second, **settings)
    await found.send("Broadcast", bodies(30))
    await first.until_bodies(bodies(30))
    await second.until_bodies(bodies(30))
    assert len(first.bodies()) == len(second.bodies()) == 30
    await kept.stop()
    await found.send("Broadcast", bodies(5, "away"))
    again = Collected()
    await found.push("BROADCAST", "Broadcast", again, offsets_directory=directory, **settings)
    await again.until_bodies(bodies(5, "away"))
    assert sorted(again.bodies()) == bodies(5, "away"), "goes on where it stopped"


async def dead_letters_are_replayed(found: Ground) -> None:
    await found.topic("Dead", 1)
    is_broken = True

    def verdict(_: ReceivedMessage, context: ConsumeContext) -> ConsumeStatus | None:
        context.delay_level = 1
        return ConsumeStatus.LATER if is_broken else None

    listener = Collected(verdict)
    await found.push("DEAD", "Dead", listener, from_where=FROM_FIRST_OFFSET, max_reconsume_times=1)
    await found.send("Dead", bodies(3, "dead"), tags="T", keys="K", properties={"own": "é"})
    letters = DeadLetters(found.client)

    async def are_dead() -> bool:
        try:
            [dlq] = await letters.topics("%DLQ%DEAD")
        except found.missing:
            return False
        return dlq.messages == 3

    await found.cluster.until(are_dead)
    is_broken = False
    assert "%DLQ%DEAD" in {dlq.topic for dlq in await letters.topics()}
    dead = {letter.place: letter for letter in await letters.read("%DLQ%DEAD")}
    assert {letter.origin_topic for letter in dead.values()} == {"Dead"}
    tried = len(listener.messages)
    assert len(await letters.replay("%DLQ%DEAD", dry_run=True)) == 3
    one = await letters.replay("%DLQ%DEAD", max_count=1)
    rest = await letters.replay("%DLQ%DEAD")
    assert [each.place for each in (*one, *rest)] == list(dead)
    assert await letters.replay("%DLQ%DEAD") == []
    # A client that starts later knows what was replayed.
    async with DeadLetters(patient_config(found.cluster.name_server)) as others:
        assert await others.replay("%DLQ%DEAD") == []
        assert (await others.topics("%DLQ%DEAD"))[0].waiting == 0
    await until(lambda: len(listener.messages) >= tried + 3, "the replays")
    again = listener.messages[tried:]
    assert sorted(message.body for message in again) == bodies(3, "dead")
    for message in again:
        letter = dead[message.properties["REPLAY_OF"]]
        assert (message.topic, message.tags, message.keys) == ("Dead", "T", "K")
        assert (message.body, message.message_id) == (letter.message.body, letter.replay_id)
        assert message.reconsume_times == 0, "it has all its retries again"
        kept = {
            "own": "é",
            "REPLAY_OF_ID": letter.message.message_id,
            "ORIGIN_MESSAGE_ID": letter.origin_message_id,
            "RETRY_TOPIC": "Dead",
            "RECONSUME_TIME": str(letter.reconsume_times),
        }
        assert kept.items() <= message.properties.items()


async def bad_messages_are_written_once(found: Ground) -> None:
    """The index of the dead-letter topic tells what was written before."""
    [queue] = await found.topic("Bad", 1)
    await found.topic("BadLetters", 1)
    await found.send("Bad", bodies(2, "bad"), queue, tags="T")
    await found.readable(queue, 2)
    bad = [BadMessage(queue, offset, b"", "why") for offset in (0, 1)]
    writer = DeadLetterWriter(found.client, "BadLetters", "PULLERS")
    assert await writer.write(bad) == 2
    letters = DeadLetters(found.client)

    async def are_indexed() -> bool:
        dead = [letter.message for letter in await letters.read("BadLetters")]
        found_by_id = [
            await found.admin.query_messages("BadLetters", message.message_id, is_unique_id=True)
            for message in dead
        ]
        return len(dead) == 2 and all(found_by_id)

    await found.cluster.until(are_indexed)
    assert await writer.write(bad) == 0
    dead = [letter.message for letter in await letters.read("BadLetters")]
    assert sorted(message.body for message in dead) == bodies(2, "bad")
    assert {message.tags for message in dead} == {"T"}


# Groups


@pytest.mark.parametrize("kind", KINDS)
def test_groups(run_async: Run, tmp_path: Path, kind: str) -> None:
    play(run_async, kind, tmp_path, members_come_and_go, orderly_members_come_and_go)


async def members_come_and_go(found: Ground, **settings: Any) -> None:
    name = "Ordered" if settings else "Shared"
    group = name.upper()
    await found.topic(name, 8)
    listeners = [Collected() for _ in range(4)]
    settings = {"from_where": FROM_FIRST_OFFSET, "lock_interval_ms": 1_000, **settings}
    members = [await found.push(group, name, listeners[0], **settings)]

    def shares() -> list[int]:
        return [
            sum(queue.topic == name for queue in member.rebalance.assigned) for member in members
        ]

    await until(lambda: shares() == [8], "all queues for the only member")
    await found.send(name, bodies(40, "one"))
    members.append(await found.push(group, name, listeners[1], **settings))
    await until(lambda: shares() == [4, 4], "two members")
    await found.send(name, bodies(40, "two"))
    members.append(await found.push(group, name, listeners[2], **settings))
    await until(lambda: sorted(shares()) == [2, 3, 3], "three members")
    await found.send(name, bodies(40, "three"))
    # One leaves as it should, one dies: its connections go without a word.
    await members.pop(1).stop()
    await until(lambda: sorted(shares()) == [4, 4], "after a leave")
    dead = members.pop(1)
    if settings.get("orderly") and not COMPLETE:
        # The locks of the dead live on for a minute: only in the complete run.
        await dead.stop()
    else:
        await dead.client.remoting.close()
    await until(lambda: shares() == [8], "after a death", 90)
    await found.send(name, bodies(40, "four"))
    wanted = {body for part in ("one", "two", "three", "four") for body in bodies(40, part)}
    await until(
        lambda: wanted <= {body for listener in listeners for body in listener.bodies()}, "all"
    )
    await members.pop().stop()


async def orderly_members_come_and_go(found: Ground) -> None:
    await members_come_and_go(found, orderly=True)
