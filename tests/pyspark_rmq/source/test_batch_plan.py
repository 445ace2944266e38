"""Options that do not fit the cluster fail on the driver, before anything is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from broker_core import EmbeddedCluster, errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.source.batch_plan import plan_batch
from pyspark_rmq.source.offsets.stream_position import StreamOffset
from pyspark_rmq.source.stream_session import Limits, StreamSession

Options = Callable[..., SourceOptions]
Topics = Callable[..., str]
FAR_MS = 1_000


def plan(options: SourceOptions) -> Any:
    connected = connections.connect(options.connection)
    return connected.call(plan_batch(connected.client, options))


def initial(options: SourceOptions) -> StreamOffset:
    connected = connections.connect(options.connection)
    return connected.call(StreamSession(connected.client, options).initial())


def first_batch(options: SourceOptions, start: StreamOffset, available_now: bool = False) -> Any:
    connected = connections.connect(options.connection)
    session = StreamSession(connected.client, options)
    if available_now:
        session.fix_target()
    return connected.call(session.latest(start, Limits(), may_wait=False))


UNKNOWN = [
    ({"broker-z": {"0": 1}}, "broker 'broker-z'.*broker-a"),
    ({"broker-z": 1}, "broker 'broker-z'.*broker-a"),
    ({"broker-z": "latest"}, "broker 'broker-z'.*broker-a"),
    ({"broker-a": {"7": 1}}, "queue 7.*queues 0, 1"),
    ({"7": 1}, "queue 7.*queues 0, 1"),
]
PAST = [
    ({"broker-a": {"0": 6}}, "offset 6.*queue 0 of .* on broker-a.*ends at 5"),
    ({"1": 4}, "offset 4.*queue 1 of .* on broker-a.*ends at 3"),
    (9, "offset 9.*ends at 5"),
]


@pytest.fixture
def topic(broker: EmbeddedBroker, new_topic: Topics) -> str:
    from tests.pyspark_rmq.source.test_stream_session import fill

    name = new_topic(2)
    fill(broker, name, q0=5, q1=3)
    return name


@pytest.fixture
def batch_of(broker: EmbeddedBroker, topic: str) -> Options:
    """Options of a batch read of the topic."""
    return lambda **given: SourceOptions.parse(
        {**broker.options, "subscribe": topic, **given}
    ).for_batch()


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize("named,text", UNKNOWN + PAST)
def test_positions_that_do_not_fit(
    topic: str, options_of: Options, batch_of: Options, option: str, named: Any, text: str
) -> None:
    value = json.dumps({topic: named})
    with pytest.raises(errors.InvalidConfig, match=text) as failure:
        plan(batch_of(**{option: value}))
    assert str(failure.value).startswith(f"{option}={value!r}")
    if option == "startingOffsets":
        with pytest.raises(errors.InvalidConfig, match=text):
            initial(options_of(subscribe=topic, startingOffsets=value))


@pytest.mark.parametrize("option", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
@pytest.mark.parametrize(
    "named,text",
    [
        ({"broker-z": {"0": FAR_MS}}, "broker 'broker-z'"),
        ({"broker-a": {"7": FAR_MS}}, "queue 7"),
    ],
)
def test_times_of_queues_that_are_not_there(
    topic: str, batch_of: Options, option: str, named: Any, text: str
) -> None:
    with pytest.raises(errors.InvalidConfig, match=text):
        plan(batch_of(**{option: json.dumps({topic: named})}))


def test_positions_that_fit(topic: str, options_of: Options) -> None:
    def begin(named: Any) -> list[int]:
        given = options_of(subscribe=topic, startingOffsets=json.dumps({topic: named}))
        return list(initial(given).queues.values())

    # The end itself is the place of the next message.
    assert begin({"broker-a": {"0": 5, "1": 3}}) == [5, 3]
    assert begin({"broker-a": {"0": 5, "1": 1}}) == [5, 1]
    assert begin({"broker-a": 3}) == [3, 3]
    assert begin({"0": -1, "1": -2}) == [5, 0]


def test_a_queue_of_another_broker() -> None:
    with EmbeddedCluster(masters=2, topics={"t": 1}) as cluster:
        given = {**cluster.options, "subscribe": "t"}
        for named in ({"broker-a": {"0": 0}, "broker-b": {"0": 0}}, {"0": 0}, {"broker-b": -1}):
            options = SourceOptions.parse({**given, "startingOffsets": json.dumps({"t": named})})
            assert list(initial(options.for_stream()).queues.values()) == [0, 0]
        options = SourceOptions.parse(
            {**given, "startingOffsets": json.dumps({"t": {"broker-b": {"1": 0}}})}
        )
        with pytest.raises(errors.InvalidConfig, match=r"queue 1 of t on broker-b.*queues 0"):
            initial(options.for_stream())
        connections.close_connections()


def test_a_filter_on_a_broker_that_does_not_filter(
    broker: EmbeddedBroker, topic: str, options_of: Options
) -> None:
    text = r"filterSql='a > 1' cannot be used: broker broker-a.*enablePropertyFilter=true"
    options = options_of(subscribe=topic, startingOffsets="earliest", filterSql="a > 1")
    with pytest.raises(errors.InvalidConfig, match=text):
        plan(options)
    start = initial(options_of(subscribe=topic, startingOffsets="earliest"))
    for available_now in (False, True):
        with pytest.raises(errors.InvalidConfig, match=text):
            first_batch(options, start, available_now)


def test_a_filter_that_cannot_be_understood() -> None:
    properties = {"enablePropertyFilter": "true"}
    with EmbeddedBroker(topics={"t": 1}, properties=properties) as filtering:
        filtering.produce("t", ["x"], properties={"a": "2"})
        filtering.produce("t", ["y"], properties={"a": "0"})
        given = {**filtering.options, "subscribe": "t", "startingOffsets": "earliest"}
        options = SourceOptions.parse({**given, "filterSql": "a > > 1"}).for_stream()
        with pytest.raises(errors.InvalidConfig, match="filterSql='a > > 1' cannot be used"):
            plan(options)
        options = SourceOptions.parse({**given, "filterSql": "a > 1"}).for_stream()
        assert len(plan(options)) == 1
        assert first_batch(options, initial(options)) is not None
        connections.close_connections()
