"""Sending, tables and display of a real broker, and of any cluster by its address."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from IPython.lib.pretty import pretty

from broker_core import Cluster, EmbeddedBroker, EmbeddedCluster, SyncAdmin
from broker_core.client.admin.groups import Progress
from broker_core.client.admin.topics import QueueSpan
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import (
    GroupNotExist,
    InvalidArgument,
    MessageTooLarge,
    NameServersSilent,
    RmqError,
    TopicNotExist,
)
from broker_core.notebook.display import (
    ClusterPicture,
    TopicPicture,
    cluster_html,
    cluster_text,
    topic_html,
    topic_text,
)
from broker_core.notebook.figures import GroupLag, TopicFigures
from broker_core.notebook.sending import send_evenly

_HOSTILE = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def new_topic(broker: EmbeddedBroker) -> Callable[[int], str]:
    def make(queue_count: int = 4) -> str:
        name = f"actions_{next(_numbers)}"
        broker.create_topic(name, queue_count)
        return name

    return make


_numbers = count()


def depths(broker: EmbeddedBroker, topic: str) -> list[int]:
    return list(broker.topic(topic).stats()["messages"])


def without_rates(text: str) -> str:
    """Rates change from one look to the next."""
    return re.sub(r"[\d,.]+/s", "?/s", text)


# Topics


def test_many_topics_at_once(broker: EmbeddedBroker) -> None:
    broker.create_topics({f"many_{number}": 1 + number % 2 for number in range(300)})
    table = broker.topics().set_index("topic")
    assert [int(table.loc[f"many_{n}", "queues"]) for n in (0, 1, 299)] == [1, 2, 2]
    broker.create_topics({"many_0": 3})
    assert len(broker.topic("many_0").stats()) == 3
    wrong: list[tuple[Any, str]] = [
        (["many_1"], r'write topics=\{"many_1": 4\}'),
        ({"bad name": 1}, "'bad name': topic has a character outside"),
        ({"many_1": 0}, "'many_1' cannot have 0 queues"),
        ({5: 1}, "5: topic is not a string but int"),
    ]
    for topics, text in wrong:
        with pytest.raises(InvalidArgument, match=text):
            broker.create_topics(topics)


# Sending


@pytest.mark.parametrize("number", [3, 40, 1_001, 25_000])
def test_messages_are_spread_evenly(
    broker: EmbeddedBroker, new_topic: Callable[[int], str], number: int
) -> None:
    topic = new_topic(4)
    assert broker.produce(topic, (str(n) for n in range(number))) == number
    found = depths(broker, topic)
    assert sum(found) == number
    assert max(found) - min(found) <= 1
    messages = broker.topic(topic).messages(8)
    # Neighbours go to neighbouring queues, and each queue has its own in order.
    by_queue: dict[int, list[int]] = {}
    for message in messages:
        by_queue.setdefault(message.queue.queue_id, []).append(int(message.body))
    assert all(bodies == sorted(bodies) for bodies in by_queue.values())


def test_a_topic_is_made_by_the_first_send(broker: EmbeddedBroker) -> None:
    assert broker.topic("made_by_produce").produce(["a"], keys="k", tags="g") == 1
    [message] = broker.consume("made_by_produce")
    assert (message.body, message.keys, message.tags) == (b"a", "k", "g")


def test_messages_of_a_sharding_key_share_a_queue(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(8)
    broker.produce(topic, [{"value": str(n), "sharding_key": "k"} for n in range(20)])
    found = broker.consume(topic)
    assert [int(message.body) for message in found] == list(range(20))
    assert len({message.queue for message in found}) == 1


def test_empty_and_large_bodies(broker: EmbeddedBroker, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(1)
    large = "x" * 300_000
    assert broker.produce(topic, ["", large, "", "a", large]) == 5
    assert [m.body.decode() for m in broker.consume(topic)] == ["", large, "", "a", large]
    assert broker.produce(topic, []) == 0
    with pytest.raises(MessageTooLarge):
        broker.produce(topic, ["x" * (5 << 20)])


def test_a_delayed_message_comes_later(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["now", {"value": "in an hour", "delay_ms": 3_600_000}])
    assert [m.body for m in broker.consume(topic)] == [b"now"]


# Tables


def test_tables(broker: EmbeddedBroker, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(2)
    broker.produce(topic, [f"m{n}" for n in range(10)], keys="k", properties={"a": "b"})
    topics = broker.topics().set_index("topic")
    assert (topics.loc[topic, "queues"], topics.loc[topic, "messages"]) == (2, 10)
    assert topics.loc[topic, "messages_per_s"] > 0
    assert not any(name.startswith(("RMQ_SYS", "SCHEDULE", "TBW")) for name in topics.index)
    assert "TBW102" in set(broker.topics(system=True)["topic"])

    tail = broker.topic(topic).tail(3)
    assert list(tail["value"]) == ["m7", "m8", "m9"]
    assert list(tail["properties"]) == [{"a": "b"}] * 3
    assert len(broker.topic(topic).tail(0)) == 0
    assert len(broker.topic(topic).tail(50)) == 10

    with SyncAdmin(broker.name_server) as admin:
        for group in ("billing", "CID_orders"):
            admin.create_group(group)
            admin.commit_offset(group, admin.queues(topic)[0], 2)
    lag = broker.topic(topic).lag()
    assert list(lag["lag"]) == [3, 5, 3, 5]
    assert set(lag["group"]) == {"billing", "CID_orders"}
    assert list(broker.lag("billing")["committed"]) == [2, 0]

    stats = broker.stats().set_index("name")["value"]
    assert int(stats["commitLogMaxOffset"]) > 0


def test_the_lag_of_a_topic_is_that_of_its_readers(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    read, unread = new_topic(2), new_topic(2)
    for topic in (read, unread):
        broker.produce(topic, ["a", "b"])
    with SyncAdmin(broker.name_server) as admin:
        admin.create_group("readers_of_one")
        admin.commit_offset("readers_of_one", admin.queues(read)[0], 1)
    assert set(broker.topic(read).lag()["group"]) == {"readers_of_one"}
    assert len(broker.topic(unread).lag()) == 0
    assert "readers_of_one" not in broker.topic(unread).describe()
    for ask in (broker.topic(read).lag, broker.lag):
        with pytest.raises(GroupNotExist, match="no broker knows group mistyped"):
            ask("mistyped")


def test_long_words_are_broken_and_times_are_not(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    broker.produce(topic, ["x" * 3_000])
    shown = broker.topic(topic)._repr_html_()
    [cell] = re.findall(r'<td style="([^"]*)">x{200}', shown)
    assert "overflow-wrap:anywhere" in cell
    times = re.findall(r'<td style="([^"]*)">\d{4}-\d\d-\d\d', shown)
    assert times
    assert all("white-space:nowrap" in style for style in times)
    [body] = re.findall(r'<td style="([^"]*)">x{3000}', broker.consume(topic)[0]._repr_html_())
    assert "overflow-wrap:anywhere" in body


def test_a_topic_of_a_broker_that_was_stopped() -> None:
    with EmbeddedBroker() as broker:
        topic = broker.topic("orders")
    for ask in (topic.tail, topic.lag, topic.stats, topic.messages):
        with pytest.raises(NameServersSilent, match=r"not running: start\(\) it first"):
            ask()
    assert "not running: start() it first" in topic.describe()
    assert "not running: start() it first" in topic._repr_html_()


def test_a_topic_that_is_not_there(broker: EmbeddedBroker) -> None:
    missing = broker.topic("missing")
    for ask in (missing.tail, missing.stats, missing.lag, lambda: broker.consume("missing")):
        with pytest.raises(TopicNotExist) as raised:
            ask()
        assert str(raised.value) == (
            f"topic missing does not exist at {broker.name_server}: look at the spelling, or create"
            ' it with create_topic("missing")\nSee docs/errors.md#topic-not-found'
        )
    assert "missing" in missing.describe()
    assert "missing" in missing._repr_html_()


@pytest.mark.parametrize("name", [None, 7, "", "a b", ["orders"]])
def test_a_name_that_is_none(broker: EmbeddedBroker, name: Any) -> None:
    for ask in (
        lambda: broker.produce(name, ["a"]),
        lambda: broker.consume(name),
        lambda: broker.topic(name).tail(),
        lambda: broker.create_topic(name),
    ):
        with pytest.raises(InvalidArgument, match="topic"):
            ask()


@pytest.mark.parametrize("properties", ["text", ["a"], 7])
def test_properties_that_are_no_dictionary(broker: EmbeddedBroker, properties: Any) -> None:
    with pytest.raises(InvalidArgument, match="is no dictionary of texts"):
        broker.produce("orders", ["a"], properties=properties)


@pytest.mark.parametrize("config", [None, 9876, ("127.0.0.1", 9876)])
def test_what_is_no_cluster(config: Any) -> None:
    with pytest.raises(InvalidArgument, match="give its name servers as host:port"):
        Cluster(config)


_FAILING_CELL = """
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("xmode", "Plain")
shell.run_cell("from broker_core import EmbeddedBroker")
shell.run_cell("def orders(broker):\\n    return broker.topic('orders').tail()")
shell.run_cell("orders(EmbeddedBroker())")
shell.run_line_magic("xmode", "Verbose")
shell.run_cell("orders(EmbeddedBroker())")
shell.history_manager.end_session()
"""


def test_a_cell_that_fails_shows_no_frames_of_the_package(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAILING_CELL],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NO_COLOR": "1", "IPYTHONDIR": str(tmp_path)},
    )
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    short, verbose = re.split("Exception reporting mode: Verbose", shown)
    assert "EmbeddedBrokerFailed: the broker was not started" in short
    assert "broker.topic('orders').tail()" in short
    assert "embedded_broker.py" not in short
    assert "embedded_broker.py" in verbose


_NO_PANDAS = """
import sys

class Missing:
    names = {"pandas"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(name)

sys.meta_path.insert(0, Missing())
from broker_core import Cluster
found = Cluster(sys.argv[1]).topics()
print(type(found).__module__, found.column_names)
for name in [name for name in sys.modules if name.startswith("pyarrow")]:
    del sys.modules[name]
Missing.names.add("pyarrow")
try:
    Cluster(sys.argv[1]).topics()
except Exception as error:
    print(error)
"""


def test_arrow_where_there_is_no_pandas(broker: EmbeddedBroker) -> None:
    broker.produce("made_by_produce", ["a"])
    done = subprocess.run(
        [sys.executable, "-c", _NO_PANDAS, broker.name_server],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    first, second = done.stdout.splitlines()
    assert first.startswith("pyarrow.lib ['topic', 'queues'")
    assert "pip install pandas" in second


# Display


def test_the_display_of_a_broker(broker: EmbeddedBroker, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(3)
    broker.produce(topic, ["a", "b"])
    with SyncAdmin(broker.name_server) as admin:
        admin.create_group("shown")
        admin.commit_offset("shown", admin.queues(topic)[0], 0)
    page = broker._repr_html_()
    for text in (page, pretty(broker), pretty(Cluster(broker.name_server))):
        assert text is not None
        for part in (broker.name_server, broker.address, topic, "shown", "log "):
            assert part in text
    assert page is not None
    assert page.count("<svg") >= 2


def test_the_display_of_many_topics_queues_and_groups_is_short() -> None:
    queues = {MessageQueue("t", "b", n): QueueSpan(0, 1, 0) for n in range(100)}
    figures = TopicFigures("t", queues, 0.0)
    lags = [GroupLag(f"g{n}", MessageQueue("t", "b", 0), Progress(1, 0, 0)) for n in range(70)]
    cluster = ClusterPicture("a cluster", "h:1", [], [figures], 9_950, lags)
    for shown in (cluster_html(cluster), cluster_text(cluster)):
        assert "and 9,950 more topics" in shown
        assert "and 6 more groups and topics" in shown
    topic = TopicPicture(figures, [], [])
    for shown in (topic_html(topic), topic_text(topic)):
        assert "and 36 more queues" in shown


def test_a_broker_with_many_topics_shows_some() -> None:
    with EmbeddedBroker(topics={f"t{n:02}": 1 for n in range(53)}) as many:
        text = many.describe()
        assert "and 3 more topics" in text
        assert ("t49" in text, "t50" in text) == (True, False)
        assert "and 3 more topics" in str(many._repr_html_())


def test_the_display_of_a_topic_has_bodies(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    empty = broker.topic(topic)
    assert "no messages yet" in empty._repr_html_()
    broker.produce(topic, [{"id": 7}, "plain text", b"\xff\x00"], keys="the-key", tags="the-tag")
    assert without_rates(pretty(empty)) == without_rates(empty.describe())
    for text in (empty._repr_html_(), pretty(empty)):
        for part in (topic, "plain text", "ff 00", "the-key", "the-tag"):
            assert part in text
    assert "{&quot;id&quot;:7}" in empty._repr_html_()


def test_nothing_of_a_message_becomes_code(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    broker.produce(
        topic,
        [_HOSTILE, {"a": _HOSTILE}],
        keys=_HOSTILE.replace(" ", ""),
        tags=_HOSTILE,
        properties={_HOSTILE: _HOSTILE},
    )
    pages = [broker.topic(topic)._repr_html_(), *(m._repr_html_() for m in broker.consume(topic))]
    assert len(pages) == 3
    for page in pages:
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_the_display_of_a_message(broker: EmbeddedBroker, new_topic: Callable[[int], str]) -> None:
    topic = new_topic(1)
    broker.produce(topic, [{"id": 7}], keys="k", tags="g", properties={"a": "b"})
    broker.produce(topic, ["x" * 10_000, b"\x00\x01", ""])
    first, long, binary, empty = broker.consume(topic)
    assert repr(first) == f"<message {topic} 0:0 key='k' tags='g' body='{{\"id\":7}}'>"
    for part in (topic, "JSON, 8 B", "&quot;id&quot;: 7", "a=b", first.message_id):
        assert part in first._repr_html_()
    assert repr(long) == f"<message {topic} 0:1 body='{'x' * 80}…'>"
    assert "10,000 B" in long._repr_html_()
    assert repr(binary) == f"<message {topic} 0:2 body=0x00 01>"
    assert "hex, 2 B" in binary._repr_html_()
    assert repr(empty) == f"<message {topic} 0:3 body=''>"


def test_a_broker_that_does_not_run() -> None:
    broker = EmbeddedBroker()
    assert broker.describe() == repr(broker) == "<EmbeddedBroker not running>"
    assert broker._repr_html_() is None
    cluster = EmbeddedCluster()
    assert pretty(cluster) == repr(cluster)
    assert cluster._repr_html_() is None
    with broker:
        address = broker.name_server
    assert broker.describe() == "<EmbeddedBroker not running>"
    gone = Cluster(address, request_timeout_ms=1_000)
    assert address in gone.describe()
    assert "could not be reached" in gone._repr_html_()  # type: ignore[operator]


def test_a_stopped_broker_is_named_as_stopped() -> None:
    stopped = EmbeddedBroker()
    with stopped:
        pass
    for use in (
        stopped.topics,
        stopped.lag,
        stopped.stats,
        lambda: stopped.produce("t", ["a"]),
        lambda: stopped.consume("t"),
        lambda: stopped.create_topic("t"),
    ):
        with pytest.raises(RmqError) as failure:
            use()
        assert str(failure.value) == "EmbeddedBroker not running: start() it first"


def test_any_cluster_by_its_address(
    broker: EmbeddedBroker, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(1)
    cluster = Cluster(broker.name_server)
    cluster.produce(topic, [{"a": 1}])
    assert [json.loads(m.body) for m in broker.consume(topic)] == [{"a": 1}]
    assert cluster.options == broker.options
    assert repr(cluster) == f"<Cluster {broker.name_server}>"
    assert topic in cluster.describe()


class _CountingProducer:
    """Answers a send only when all that were begun at once are under way."""

    def __init__(self) -> None:
        self.size = self.size_max = 0
        self.sent: list[int] = []

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "broker-a", 0)]

    async def send(self, message: OutgoingMessage, *, queue: MessageQueue) -> None:
        self.size += len(message.body)
        self.size_max = max(self.size_max, self.size)
        self.sent.append(message.body[0])
        await asyncio.sleep(0)
        self.size -= len(message.body)


def test_large_messages_are_not_all_sent_at_once(run_async: Callable[..., Any]) -> None:
    """The timeout of a send runs while the ones before it are written to the connection."""
    producer: Any = _CountingProducer()
    rows = [OutgoingMessage("t", bytes([number]) * 900_000) for number in range(40)]
    assert run_async(send_evenly(producer, "t", rows)) == 40
    assert producer.sent == list(range(40))
    assert 900_000 < producer.size_max < 6 << 20
