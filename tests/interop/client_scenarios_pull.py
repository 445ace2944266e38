"""Real pull consumers: statuses of single pulls, lite pull with seeking and committing."""

from __future__ import annotations

import threading
from typing import Any

from tests.interop.client_ground import GO, NODE, OURS, Ground, scenario, texts
from tests.interop.client_scenarios_send import pulled
from tests.interop.driven_client import ANSWER_TIMEOUT_S, Row
from tests.interop.server_processes import OURS as OUR_BROKER
from tests.interop.server_processes import wait_until

NO_PULLS = {NODE: "this library has no pull consumer"}
_STREAMS = "this library has streams of exact ranges instead of lite pull"
NO_LITE_PULLS = {
    GO: "this library has no seek, pause and assigned queues",
    OURS: _STREAMS,
    **NO_PULLS,
}


def bounds(result: Row) -> tuple[str, int, int, int]:
    return result["status"], result["next"], result["min"], result["max"]


@scenario(
    "pull statuses: found, no new, no match, offset illegal", also_binary=True, lacking=NO_PULLS
)
def pull_statuses(ground: Ground) -> None:
    if ground.language == GO:
        go_pull_statuses(ground)
        return
    topic, producer = ground.topic(), ground.producer()
    consumer = ground.pull(topic)
    assert bounds(consumer.call("pull", offset=0)) == ("NO_NEW_MSG", 0, 0, 0)
    assert bounds(consumer.call("pull", offset=7)) == ("OFFSET_ILLEGAL", 0, 0, 0)
    for number in range(40):
        producer.send(topic, f"m{number}".encode(), queue=0, tags=["even", "odd"][number % 2])
    # Brokers count a message in its queue shortly after they have answered.
    wait_until(lambda: producer.offsets(topic)["max"] == 40, 60, "forty messages")
    found = consumer.call("pull", offset=3, count=5)
    assert bounds(found) == ("FOUND", 8, 0, 40)
    assert texts(found["messages"]) == [f"m{number}" for number in range(3, 8)]
    even = consumer.call("pull", offset=0, count=32, expression="even")
    assert even["status"] == "FOUND"
    expected = [f"m{number}" for number in range(0, even["next"], 2)]
    assert texts(even["messages"]) == expected
    assert len(expected) > 1
    missed = consumer.call("pull", offset=0, count=32, expression="neither")
    assert (missed["status"], missed["messages"]) == ("NO_MATCHED_MSG", [])
    assert 0 < missed["next"] <= 40
    assert bounds(consumer.call("pull", offset=40)) == ("NO_NEW_MSG", 40, 0, 40)
    assert bounds(consumer.call("pull", offset=41)) == ("OFFSET_ILLEGAL", 40, 0, 40)


def go_pull_statuses(ground: Ground) -> None:
    """Go's filter belongs to the consumer, and its pulls always wait, so that "no new" is late."""
    topic, producer = ground.topic(), ground.producer()
    for number in range(40):
        producer.send(topic, f"m{number}".encode(), queue=0, tags=["even", "odd"][number % 2])
    # Brokers count a message in its queue shortly after they have answered.
    wait_until(lambda: producer.offsets(topic)["max"] == 40, 60, "forty messages")
    consumer = ground.pull(topic)
    found = consumer.call("pull", offset=3, count=5)
    assert bounds(found) == ("FOUND", 8, 0, 40)
    assert texts(found["messages"]) == [f"m{number}" for number in range(3, 8)]
    assert bounds(consumer.call("pull", offset=41)) == ("OFFSET_ILLEGAL", 40, 0, 40)
    group = ground.group("-even")
    even = ground.pull(topic, "-even", group=group, expression="even").call("pull", offset=0)
    assert even["status"] == "FOUND"
    expected = [f"m{number}" for number in range(0, even["next"], 2)]
    assert texts(even["messages"]) == expected
    assert len(expected) > 1


@scenario("a pull that waits is answered by the next message that matches", lacking=NO_PULLS)
def waiting_pull(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    consumer = ground.pull(topic, expression="wanted")
    producer.send(topic, b"first", queue=0)
    wait_until(lambda: producer.offsets(topic)["max"] == 1, 60, "the first message")
    waiting = consumer.begin("pull", offset=1, block=True, expression="wanted")
    # Long enough for the pull to wait at the broker; too short only weakens the test.
    threading.Event().wait(0.3)
    if ground.language != GO or ground.cluster.kind == OUR_BROKER:
        # Apache answers Go's pulls early, without a message and with the next offset.
        assert not waiting.done()
    producer.send(topic, b"other", queue=0, tags="unwanted")
    producer.send(topic, b"mine", queue=0, tags="wanted")
    result = waiting.result(ANSWER_TIMEOUT_S)
    # Apache also looks every five seconds, whatever the tags are: that may be between the two.
    patient = ground.language == GO or ground.cluster.kind != OUR_BROKER
    while patient and result["status"] == "NO_MATCHED_MSG":
        result = consumer.call("pull", offset=result["next"])
    assert (result["status"], texts(result["messages"])) == ("FOUND", ["mine"])
    assert result["next"] == 3


@scenario("progress of a pull consumer: committed and read again", lacking=NO_PULLS)
def pull_progress(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    consumer = ground.pull(topic)
    for number in range(5):
        producer.send(topic, b"%d" % number, queue=0)
    assert len(pulled(consumer, 5)) == 5
    consumer.call("commit", offset=3)
    wait_until(lambda: consumer.call("committed") == 3, 60, "offset 3 committed")
    group = ground.group("-pull")
    wait_until(lambda: ground.observer.committed(group, topic) == 3, 60, "offset 3 at the broker")


@scenario(
    "lite pull: assigned queues, seek, pause, commit", also_binary=True, lacking=NO_LITE_PULLS
)
def lite_pull(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    for number in range(20):
        producer.send(topic, f"m{number}".encode(), queue=0)
    lite = ground.lite(topic)
    lite.call("seek_begin")
    assert taken(lite, 0, 20) == list(range(20))
    lite.call("seek", offset=15)
    assert taken(lite, 15, 5) == list(range(15, 20))
    wait_until(lambda: committed(lite) == 20, 60, "offset 20 committed")
    lite.call("seek_end")
    producer.send(topic, b"m20", queue=0)
    assert taken(lite, 20, 1) == [20]
    lite.call("pause")
    producer.send(topic, b"m21", queue=0)
    # The pull that was waiting when the queue was paused may still bring one message.
    early = lite.call("poll", timeout_ms=200)["messages"]
    lite.call("resume")
    late = [] if early else lite.call("poll", count=1, timeout_ms=20_000)["messages"]
    assert texts(early + late) == ["m21"]
    [last] = pulled(ground.pull(topic), 1, start=21)
    found = lite.call("at_time", timestamp=last["store_timestamp"])
    assert found <= 21


def committed(lite: Any) -> int:
    """The offset that is kept after a commit of what was polled."""
    lite.call("commit")
    offset: int = lite.call("committed")
    return offset


def taken(lite: Any, start: int, count: int) -> list[int]:
    """The first offsets polled from `start` on, in the order of their first coming.

    A pull that was under way when the client sought brings its messages as well: before those that
    were sought, or a second time.
    """
    offsets: list[int] = []
    while len(offsets) < count:
        messages = lite.call("poll", count=1)["messages"]
        assert messages, f"nothing more came after {offsets}"
        assert texts(messages) == [f"m{message['offset']}" for message in messages]
        for offset in (message["offset"] for message in messages):
            if (offsets or offset == start) and offset not in offsets:
                offsets.append(offset)
    return offsets[:count]


@scenario(
    "lite pull: subscribed members share the queues and keep their progress",
    lacking={OURS: _STREAMS, **NO_PULLS},
)
def lite_subscription(ground: Ground) -> None:
    topic, producer = ground.topic(4), ground.producer()
    first = ground.lite(topic, "-a", subscribe=True, expression="yes")
    wait_until(lambda: first.call("assigned") == [0, 1, 2, 3], 60, "all four queues")
    for number in range(12):
        producer.send(
            topic, f"m{number}".encode(), queue=number % 4, tags=["yes", "no"][number % 2]
        )
    polled = first.call("poll", count=6)["messages"]
    assert sorted(texts(polled)) == sorted(f"m{number}" for number in range(0, 12, 2))
    first.call("commit")
    second = ground.lite(topic, "-b", subscribe=True, expression="yes")
    wait_until(
        lambda: sorted([first.call("assigned"), second.call("assigned")]) == [[0, 1], [2, 3]],
        60,
        "two queues each",
    )
