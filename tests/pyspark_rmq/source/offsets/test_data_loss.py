"""Queues that end before the position, with failOnDataLoss=false: nothing is read twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_core import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.offsets.data_loss import (
    DataLost,
    describe_lost,
    describe_unknown_loss,
)
from pyspark_rmq.source.offsets.offset_planning import ranges_between
from pyspark_rmq.source.offsets.stream_position import StoreIdentity, StreamOffset
from pyspark_rmq.source.stream_session import Limits, StreamSession
from tests.client.scripted_brokers import ScriptedBroker, ScriptedCluster
from tests.pyspark_rmq.source.test_absent_brokers import QUEUE_A, QUEUE_B, _run
from tests.pyspark_rmq.source.test_stream_session import Query, fill, ranges

Options = Callable[..., SourceOptions]
Topics = Callable[..., str]


@pytest.fixture
def query() -> Iterator[Callable[[SourceOptions], Query]]:
    made: list[Query] = []

    def make(options: SourceOptions) -> Query:
        made.append(Query(options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def at(real: StreamOffset, topic: str, *offsets: int, **store: str) -> StreamOffset:
    """A position of the same store, or one whose `epoch` or `store_id` differs."""
    queues = {MessageQueue(topic, "broker-a", n): offset for n, offset in enumerate(offsets)}
    stores = {"broker-a": real.stores["broker-a"]._replace(**store)}
    return StreamOffset(queues, stores=stores)


@pytest.mark.parametrize("store", [{}, {"epoch": "0"}], ids=["same epoch", "another epoch"])
@pytest.mark.parametrize("filled,ahead", [(4, 1), (4, 30), (0, 3)], ids=["one", "many", "empty"])
def test_the_same_store_continues_at_the_new_end(
    broker: EmbeddedBroker,
    new_topic: Topics,
    options_of: Options,
    query: Any,
    caplog: pytest.LogCaptureFixture,
    filled: int,
    ahead: int,
    store: dict[str, str],
) -> None:
    topic = new_topic(2)
    fill(broker, topic, q0=filled, q1=2)
    real = query(options_of(subscribe=topic)).initial()
    old = at(real, topic, filled + ahead, 2, **store)
    with pytest.raises(DataLost):
        query(options_of(subscribe=topic)).latest(old)
    running = query(options_of(subscribe=topic, failOnDataLoss="false"))
    with caplog.at_level(logging.WARNING):
        end = running.latest(old)
    # A batch without rows, so that the position in the checkpoint is the new end.
    assert ranges(old, end) == {}
    assert list(end.queues.values()) == [filled, 2]
    assert end.stores == real.stores
    told = [r.getMessage() for r in caplog.records if f"{ahead} messages" in r.getMessage()]
    assert len(told) == 1
    assert f"reading goes on at {filled}" in told[0]
    assert running.latest(end) is end
    # What comes takes the offsets that were cut; none of it was read, after a restart neither.
    fill(broker, topic, q0=ahead + 2)
    for later in (running, query(options_of(subscribe=topic))):
        assert ranges(end, later.latest(end)) == {0: (filled, filled + ahead + 2)}


def test_a_cut_beside_new_messages(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(2)
    fill(broker, topic, q0=4, q1=9)
    real = query(options_of(subscribe=topic)).initial()
    old = at(real, topic, 5, 2)
    running = query(options_of(subscribe=topic, failOnDataLoss="false"))
    end = running.latest(old, Limits(rows=3))
    assert ranges(old, end) == {1: (2, 5)}
    assert list(end.queues.values()) == [4, 5]


def test_a_position_without_a_store_reads_nothing_twice(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    fill(broker, topic, q0=4)
    old = StreamOffset({MessageQueue(topic, "broker-a", 0): 5})
    end = query(options_of(subscribe=topic, failOnDataLoss="false")).latest(old)
    assert ranges(old, end) == {}
    assert list(end.queues.values()) == [4]


def test_another_store_is_read_from_its_beginning_also_if_it_is_empty_first(
    broker: EmbeddedBroker, new_topic: Topics, options_of: Options, query: Any
) -> None:
    topic = new_topic(1)
    real = query(options_of(subscribe=topic)).initial()
    old = at(real, topic, 5, store_id="f" * 32)
    running = query(options_of(subscribe=topic, failOnDataLoss="false"))
    end = running.latest(old)
    assert list(end.queues.values()) == [0]
    fill(broker, topic, q0=8)
    assert ranges(end, query(options_of(subscribe=topic)).latest(end)) == {0: (0, 8)}


def _like_apache(broker: ScriptedBroker, begin: int, end: int) -> None:
    """A broker that does not name its log."""

    def offset(number: int) -> Callable[[RemotingCommand], RemotingCommand]:
        return lambda command: command.reply(ext={"offset": str(number)})

    def unknown(command: RemotingCommand) -> RemotingCommand:
        return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    for code in (RequestCode.CAPABILITIES, RequestCode.TOPIC_ENDS):
        broker.answers[code] = unknown
    broker.answers[RequestCode.GET_MAX_OFFSET] = offset(end)
    broker.answers[RequestCode.GET_MIN_OFFSET] = offset(begin)


def test_a_store_without_a_name_is_read_again_from_its_minimum() -> None:
    async def work(cluster: ScriptedCluster, session: StreamSession) -> None:
        for broker in cluster.brokers:
            _like_apache(broker, 2, 7)
        nameless = {"broker-a": StoreIdentity(), "broker-b": StoreIdentity()}
        start = StreamOffset({QUEUE_A: 8, QUEUE_B: 7}, stores=nameless)
        end = await session.latest(start, Limits(), may_wait=False)
        assert {p.broker_name: (p.start, p.until) for p in ranges_between(start, end)} == {
            "broker-a": (2, 7)
        }

    _run(work, failOnDataLoss="false")


def test_the_text_names_the_first_queues() -> None:
    queues = [MessageQueue("T", "broker-a", number) for number in range(8)]
    same = {queue: 10 + queue.queue_id for queue in queues}
    text = describe_lost(same, {**dict.fromkeys(queues, 20), queues[0]: 10})
    assert text.startswith(
        "42 messages that were read are not in the log any more: 9 of queue 1 of"
    )
    assert "6 of queue 4 of T from offset 14 on" in text
    assert "queue 6" not in text
    assert "and 2 more queues" in text
    assert "reading goes on with those" in text
    assert "goes on after it" in describe_lost({queues[0]: 3}, {queues[0]: 5}, is_repeated=True)
    # A queue that the position does not have, and one that is still whole.
    assert "All messages that this query has read" in describe_lost({queues[0]: 3}, {})
    assert "All messages that this query has read" in describe_lost({queues[0]: 3}, {queues[0]: 3})
    assert "is not known" in describe_unknown_loss("12.3.abc")
    assert "12.3.abc" in describe_unknown_loss("12.3.abc")
