"""How far the next batch goes, asked of a real broker, without Spark."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer, errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source import stream_session
from pyspark_rmq.source.offsets.data_loss import DataLost
from pyspark_rmq.source.offsets.offset_planning import QueueRange, ranges_between
from pyspark_rmq.source.offsets.stream_position import StoreIdentity, StreamOffset
from pyspark_rmq.source.stream_session import Limits, StreamSession

NO_LIMITS = Limits()
Options = Callable[..., SourceOptions]
Topics = Callable[..., str]


class Query:
    """One run of a query; offsets pass through JSON as Spark passes them."""

    def __init__(self, options: SourceOptions) -> None:
        self.connected = connections.connect(options.connection)
        self.session = StreamSession(self.connected.client, options)

    def initial(self) -> StreamOffset:
        return _through_json(self.connected.call(self.session.initial()))

    def latest(
        self, start: StreamOffset, limits: Limits = NO_LIMITS, *, may_wait: bool = False
    ) -> StreamOffset:
        end = self.connected.call(self.session.latest(start, limits, may_wait=may_wait))
        return start if end is start else _through_json(end)

    def close(self) -> None:
        self.connected.call(self.session.close())


def _through_json(offset: StreamOffset) -> StreamOffset:
    return StreamOffset.from_json(json.loads(json.dumps(offset.to_json())))


@pytest.fixture
def query() -> Iterator[Callable[[SourceOptions], Query]]:
    made: list[Query] = []

    def make(options: SourceOptions) -> Query:
        made.append(Query(options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def fill(broker: EmbeddedBroker, topic: str, **counts: int) -> None:
    """`q0=5` sends five messages to queue 0."""
    with SyncProducer(broker.name_server) as producer:
        for name, count in counts.items():
            queue = MessageQueue(topic, "broker-a", int(name[1:]))
            for number in range(count):
                producer.send(OutgoingMessage(topic, b"%d" % number), queue=queue)


def ranges(start: StreamOffset, end: StreamOffset) -> dict[int, tuple[int, int]]:
    return {part.queue_id: (part.start, part.until) for part in ranges_between(start, end)}


def test_latest_and_earliest(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(2)
    fill(broker, topic, q0=3, q1=1)
    at_end, at_begin = (
        query(options_of(subscribe=topic, startingOffsets=text)) for text in ("latest", "earliest")
    )
    assert list(at_end.initial().queues.values()) == [3, 1]
    begin = at_begin.initial()
    assert list(begin.queues.values()) == [0, 0]
    assert at_begin.initial() == begin
    assert ranges(begin, at_begin.latest(begin)) == {0: (0, 3), 1: (0, 1)}
    start = at_end.initial()
    assert at_end.latest(start) is start


def test_the_first_batch_is_the_same_after_a_restart(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    # Spark keeps the end of the first batch and asks again where the query began.
    topic = new_topic(2)
    fill(broker, topic, q0=3)
    options = options_of(subscribe=topic)
    first = query(options)
    start = first.initial()
    fill(broker, topic, q0=2, q1=4)
    end = first.latest(start)
    fill(broker, topic, q0=5)
    later = query(options).initial()
    assert later.queues != start.queues
    assert ranges(later, end) == ranges(start, end) == {0: (3, 5), 1: (0, 4)}


def test_limits(broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any) -> None:
    topic = new_topic(2)
    fill(broker, topic, q0=30, q1=10)
    running = query(options_of(subscribe=topic, startingOffsets="earliest"))
    position = running.initial()
    sizes = []
    while (end := running.latest(position, Limits(rows=16))) is not position:
        sizes.append(sum(b - a for a, b in ranges(position, end).values()))
        position = end
    assert sizes == [16, 16, 8]
    assert not position.begins


def test_a_limit_of_bytes(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    broker.produce(topic, [b"x" * 3000] * 40)
    running = query(options_of(subscribe=topic, startingOffsets="earliest"))
    start = running.initial()
    end = running.latest(start, Limits(size=40_000))
    assert ranges(start, end) == {0: (0, 9)}
    assert running.latest(end, Limits(size=1)).queues[MessageQueue(topic, "broker-a", 0)] == 10


def test_a_minimum_waits_until_there_is_enough_or_it_took_too_long(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    patient = query(options_of(subscribe=topic))
    hasty = query(options_of(subscribe=topic, maxTriggerDelay="0ms"))
    start, other = patient.initial(), hasty.initial()
    fill(broker, topic, q0=3)
    limits = Limits(rows_min=5)
    assert patient.latest(start, limits) is start
    assert hasty.latest(other, limits) is not other
    fill(broker, topic, q0=2)
    assert ranges(start, patient.latest(start, limits)) == {0: (0, 5)}


def test_available_now_is_what_was_there_at_the_first_question(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=5)
    running = query(options_of(subscribe=topic, startingOffsets="earliest"))
    running.session.fix_target()
    start = running.initial()
    one = running.latest(start, Limits(rows=3))
    fill(broker, topic, q0=10)
    two = running.latest(one, Limits(rows=3))
    assert ranges(one, two) == {0: (3, 5)}
    assert running.latest(two, Limits(rows=3)) is two


def test_new_queues_begin_at_their_beginning(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(2)
    options = options_of(subscribe=topic, partition__metadata__cache__ttl__ms=0)
    running = query(options)
    start = running.initial()
    fill(broker, topic, q0=1)
    one = running.latest(start)
    broker.create_topic(topic, 4)
    assert running.latest(one) is one
    fill(broker, topic, q0=1, q2=2, q3=5)
    two = running.latest(one, Limits(rows=4))
    found = ranges(one, two)
    assert found[0] == (1, 2)
    assert found[2][0] == found[3][0] == 0
    assert sum(b - a for a, b in found.values()) == 4
    # And the plan of that batch needs no memory of this run.
    three = query(options).latest(two)
    rest = ranges(two, three)
    assert sum(b - a for a, b in rest.values()) == 4
    assert rest[3][1] == 5


def test_a_pattern_finds_topics_that_come_later(
    broker: EmbeddedBroker, options_of: Options, query: Any
) -> None:
    broker.create_topic("later_a", 1)
    options = options_of(subscribePattern="later_.*", partition__metadata__cache__ttl__ms=0)
    running = query(options)
    start = running.initial()
    assert {queue.topic for queue in start.queues} == {"later_a"}
    broker.produce("later_b", [b"x"])
    end = running.latest(start)
    [part] = ranges_between(start, end)
    assert (part.topic, part.start, part.until) == ("later_b", 0, 1)


def test_a_pattern_does_not_match_topics_of_the_system(options_of: Options, query: Any) -> None:
    topics = {queue.topic for queue in query(options_of(subscribePattern=".*")).initial().queues}
    assert not topics & {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "DefaultCluster"}
    assert not any(topic.startswith(("%", "RMQ_SYS", "rmq_sys")) for topic in topics)


def test_a_pattern_leaves_out_the_dead_letter_topic(
    broker: EmbeddedBroker, options_of: Options, query: Any
) -> None:
    broker.create_topics({"taken-in": 1, "taken-bad": 1})
    given = {"valueFormat": "json", "badRecords": "deadLetter", "deadLetterTopic": "taken-bad"}
    running = query(options_of(subscribePattern="taken-.*", **given))
    assert {queue.topic for queue in running.initial().queues} == {"taken-in"}


def test_a_wait_ends_when_a_message_comes(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(4)
    # By itself the wait would end long after this test has given up.
    options = dataclasses.replace(options_of(subscribe=topic), latest_offset_wait_ms=3_600_000)
    running = query(options)
    start = running.initial()
    asked = running.connected.begin(running.session.latest(start, NO_LIMITS, may_wait=True))
    fill(broker, topic, q2=1)
    end = asked.result(timeout=300)
    assert ranges(start, end) == {2: (0, 1)}


def test_a_wait_without_messages_ends(new_topic: Topics, options_of: Options, query: Any) -> None:
    running = query(options_of(subscribe=new_topic(2), latestOffsetWaitMs=50))
    start = running.initial()
    for _ in range(3):
        assert running.latest(start, may_wait=True) is start


def test_progress_is_sent_to_the_broker(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=4)
    group = f"group_{topic}"
    options = options_of(subscribe=topic, startingOffsets="committed", rmq__group=group)
    running = query(options)
    start = running.initial()
    end = running.latest(start, Limits(rows=3))
    with SyncAdmin(broker.name_server) as admin:
        queue = MessageQueue(topic, "broker-a", 0)
        assert admin.committed_offset(group, queue) is None
        # Spark asks for the next batch when this one is done.
        running.latest(end)
        assert admin.committed_offset(group, queue) == 3
    assert list(query(options).initial().queues.values()) == [3]


def test_backlog(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(2)
    fill(broker, topic, q0=6, q1=2)
    running = query(options_of(subscribe=topic, startingOffsets="earliest"))
    assert running.session.backlog()["totalLag"] == 0
    running.latest(running.initial(), Limits(rows=4))
    found = running.session.backlog()
    assert found["totalLag"] == 4
    assert found["queues"][topic]["broker-a"] == {"0": 6, "1": 2}
    assert sum(found["lag"][topic]["broker-a"].values()) == 4


# Loss


def test_a_topic_of_a_pattern_that_was_deleted_is_noticed(
    broker: EmbeddedBroker,
    new_topic: Topics,
    options_of: Options,
    query: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_session, "TOPIC_GRACE_S", 0.0)
    broker.create_topic("pattern-a", 1)
    broker.create_topic("pattern-b", 1)
    fill(broker, "pattern-a", q0=2)
    fill(broker, "pattern-b", q0=2)
    options = options_of(
        subscribePattern="pattern-.*",
        startingOffsets="earliest",
        partition__metadata__cache__ttl__ms=0,
    )
    running = query(options)
    start = running.latest(running.initial())
    assert sum(start.queues.values()) == 4
    with SyncAdmin(broker.name_server) as admin:
        admin.delete_topic("pattern-a")
    with pytest.raises(DataLost, match="topic pattern-a was read and no name server knows it"):
        for _ in range(20):
            running.latest(start)


def test_another_store_is_noticed(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=4)
    queue = MessageQueue(topic, "broker-a", 0)
    old = StreamOffset({queue: 2}, stores={"broker-a": StoreIdentity("f" * 32, "1")})
    with pytest.raises(DataLost, match="another store"):
        query(options_of(subscribe=topic)).latest(old)
    end = query(options_of(subscribe=topic, failOnDataLoss="false")).latest(old)
    # Offsets of the other store mean nothing here: all of this one is new.
    assert ranges(old, end) == {0: (0, 4)}
    assert end.stores["broker-a"].store_id != "f" * 32


def test_nothing_of_another_store_is_skipped(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    """Also where its first batch reads nothing: offsets of the old store count nowhere."""
    topic, other = new_topic(2), new_topic(1)
    fill(broker, topic, q0=1)
    queues = [MessageQueue(topic, "broker-a", queue_id) for queue_id in (0, 1)]
    unseen = MessageQueue("gone", "broker-a", 0)
    old = StreamOffset(
        dict.fromkeys((*queues, unseen), 10), stores={"broker-a": StoreIdentity("f" * 32, "1")}
    )
    running = query(options_of(subscribe=f"{topic},{other}", failOnDataLoss="false"))
    first = running.latest(old, Limits(rows=1))
    assert ranges(old, first) == {0: (0, 1)}
    assert first.queues[unseen] == 0
    fill(broker, topic, q1=12)
    assert ranges(first, running.latest(first)) == {1: (0, 12)}


def test_an_epoch_that_changed_is_noticed(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=1)
    start = query(options_of(subscribe=topic, startingOffsets="earliest")).initial()
    store = start.stores["broker-a"]
    old = start._replace(stores={"broker-a": store._replace(epoch="0", run="")}, is_initial=False)
    with pytest.raises(DataLost, match="epoch"):
        query(options_of(subscribe=topic)).latest(old)
    end = query(options_of(subscribe=topic, failOnDataLoss="false")).latest(old)
    assert ranges(old, end) == {0: (0, 1)}


def test_a_queue_that_ends_before_the_checkpoint_is_noticed(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=2)
    old = StreamOffset({MessageQueue(topic, "broker-a", 0): 50})
    with pytest.raises(DataLost, match=r"ends at 2, and was read up to 50.*48 messages"):
        query(options_of(subscribe=topic)).latest(old)


def test_a_queue_that_is_away_keeps_its_position(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=2)
    away = MessageQueue(topic, "broker-z", 3)
    here = MessageQueue(topic, "broker-a", 0)
    start = StreamOffset({away: 17, here: 0})
    end = query(options_of(subscribe=topic)).latest(start)
    assert end.queues == {here: 2, away: 17}
    assert ranges_between(start, end) == [QueueRange(*here, 0, 2)]


# Beginnings


def test_a_topic_that_is_not_there(options_of: Options, query: Any) -> None:
    with pytest.raises(errors.TopicNotExist, match="waitForTopicMs"):
        query(options_of(subscribe="nobody_made_this")).initial()


def test_positions_must_name_topics_that_are_read(
    new_topic: Topics, options_of: Options, query: Any
) -> None:
    options = options_of(subscribe=new_topic(1), startingOffsets='{"other":5}')
    with pytest.raises(errors.InvalidConfig, match="'other', which is not read"):
        query(options).initial()


def test_where_a_stream_begins(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(2)
    fill(broker, topic, q0=10, q1=3)

    def begin(**given: Any) -> list[int]:
        return list(query(options_of(subscribe=topic, **given)).initial().queues.values())

    assert begin(startingOffsets="latest-4") == [6, 0]
    assert begin(startingOffsets="earliest+5") == [5, 3]
    assert begin(startingOffsets="-1h") == [0, 0]
    assert begin(startingOffsets="-0ms") == [10, 3]
    assert begin(startingOffsets=json.dumps({topic: {"broker-a": {"0": 7, "1": -1}}})) == [7, 3]
    assert begin(startingOffsets=json.dumps({topic: {"0": 7}})) == [7, 0]
    assert begin(startingOffsets=json.dumps({topic: "latest-1"})) == [9, 2]
    assert begin(startingTimestamp="0") == [0, 0]
    future = "2999-01-01T00:00:00Z"
    assert begin(startingTimestamp=future, startingOffsetsByTimestampStrategy="latest") == [10, 3]
    with pytest.raises(errors.InvalidArgument, match="startingOffsetsByTimestampStrategy"):
        begin(startingTimestamp=future)


def test_assigned_queues_only(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(3)
    found = query(options_of(assign=json.dumps({topic: [2, 0]}))).initial()
    assert [queue.queue_id for queue in found.queues] == [0, 2]
    with pytest.raises(errors.InvalidArgument, match=f"queue 9 of {topic}"):
        query(options_of(assign=json.dumps({topic: {"broker-a": [9]}}))).initial()


def test_servers_that_are_away_for_a_while_hold_the_query_up(
    options_of: Options, query: Any
) -> None:
    with EmbeddedBroker(topics={"t": 2}) as other:
        given = {**other.options, "subscribe": "t", "partition.metadata.cache.ttl.ms": "0"}
        options = SourceOptions.parse({**given, "startingOffsets": "earliest"}).for_stream()
        running = query(options)
        start = running.initial()
        fill(other, "t", q1=2)
        for is_new in (False, True):
            other.kill()
            # Also a query that starts while they are away, if it was started before.
            asked = query(options) if is_new else running
            answer = asked.connected.begin(asked.session.latest(start, NO_LIMITS, may_wait=True))
            other.start()
            # The answer comes when the broker has said what it has, and not before.
            assert ranges(start, answer.result(timeout=300)) == {1: (0, 2)}


def test_a_cluster_that_stays_away_ends_the_query(query: Any) -> None:
    given = {"nameServer": "127.0.0.1:1", "subscribe": "t", "rmqConsumer.pollTimeoutMs": "1"}
    running = query(SourceOptions.parse(given).for_stream())
    start = StreamOffset({MessageQueue("t", "broker-a", 0): 3})
    with pytest.raises(errors.RmqError):
        for _ in range(100):
            assert running.latest(start) is start
