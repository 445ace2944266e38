"""Real push consumers: delivery, order, filters, retries, members that come and go."""

from __future__ import annotations

from pathlib import Path

from tests.interop.client_ground import GO, JAVA, NODE, OURS, Ground, PushConsumer, scenario, texts
from tests.interop.client_scenarios_send import pulled
from tests.interop.driven_client import Row
from tests.interop.java_client import CLIENT_VERSIONS
from tests.interop.server_processes import wait_until

STREAM_COUNT = 20_000
STREAM_QUEUES = 4
# Without a notice from the broker a client looks for new members only every 20 s.
REBALANCE_TIMEOUT_S = 60.0
# A broker that does not wake the pulls that it holds looks at them every five seconds at best: so
# many rounds, one after another, would take it far longer than an answer is waited for.
WAKING_ROUNDS = 200
NO_ORDER = {NODE: "this library has no orderly consumer"}
GO_CLIENT, NODE_CLIENT = "Go 2.1.2", "Node 3.12.0"
EVERY_CLIENT = (*(f"Java {version}" for version in CLIENT_VERSIONS), GO_CLIENT, "ours")
COLLIDING_TAGS = ("AaAa", "BBBB")


@scenario("concurrent push consumption: everything once", also_binary=True)
def push_concurrent(ground: Ground) -> None:
    topic, producer = ground.topic(4), ground.producer()
    expected = [f"m{number}" for number in range(60)]
    for text in expected[:30]:
        producer.send(topic, text.encode())
    consumer = ground.push(topic, batch=4)
    consumer.wait(30)
    for text in expected[30:]:
        producer.send(topic, text.encode())
    received = consumer.wait(60)
    assert sorted(texts(received)) == sorted(expected)
    if ground.language == JAVA:
        assert all(message["properties"]["MAX_OFFSET"] for message in received)
    consumer.wait_done(topic, 60)
    consumer.close()
    # The goodbye saved its progress: the next member begins where it ended.
    follower = ground.push(topic, "-next")
    producer.send(topic, b"last")
    assert texts(follower.wait(1)) == ["last"]


@scenario("start positions of a new group: first and last offset")
def start_positions(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    producer.send(topic, b"old", queue=0)
    first = ground.push(topic, "-first", group=ground.group("-first"))
    last = ground.push(
        topic, "-last", group=ground.group("-last"), start_at="CONSUME_FROM_LAST_OFFSET"
    )
    assert texts(first.wait(1)) == ["old"]
    wait_until(lambda: last.queues(topic) == [0], 60, "the queue of the second group")
    producer.send(topic, b"new", queue=0)
    assert texts(first.wait(2)) == ["old", "new"]
    # Brokers may send a new group to the first offset of a topic whose data is still young.
    assert set(texts(last.wait(lambda got: "new" in texts(got)))) <= {"old", "new"}


@scenario("orderly push consumption: each queue in order", also_binary=True, lacking=NO_ORDER)
def push_orderly(ground: Ground) -> None:
    topic, producer = ground.topic(3), ground.producer()
    consumer = ground.push(topic, orderly=True)
    sent: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for number in range(60):
        shard = f"shard{number % 7}"
        result = producer.send_ordered(topic, f"m{number}".encode(), shard)
        sent[result["queue"]].append(f"m{number}")
    received = consumer.wait(60)
    for queue, expected in sent.items():
        assert texts([m for m in received if m["queue"] == queue]) == expected


@scenario(
    "orderly consumption: a failed message blocks its queue until it succeeds", lacking=NO_ORDER
)
def orderly_retry(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    for text in ("a", "fail", "b"):
        producer.send(topic, text.encode(), queue=0)
    consumer = ground.push(topic, orderly=True, failures=2, suspend_ms=50)
    received = consumer.wait(5)
    assert texts(received) == ["a", "fail", "fail", "fail", "b"]
    assert [message["offset"] for message in received] == [0, 1, 1, 1, 2]


@scenario(
    "orderly consumption: a message past its retries goes to the dead letters", lacking=NO_ORDER
)
def orderly_dead_letters(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    for text in ("fail", "next"):
        producer.send(topic, text.encode(), queue=0)
    consumer = ground.push(topic, orderly=True, failures=100, suspend_ms=50, retries_max=2)
    consumer.wait(lambda got: "next" in texts(got))
    assert texts(dead_letters(ground)) == ["fail"]


@scenario(
    "an ordered stream of 20,000 messages",
    also_binary=True,
    slow_with=(GO_CLIENT, "ours"),
    lacking=NO_ORDER,
)
def ordered_stream(ground: Ground) -> None:
    topic, producer = ground.topic(STREAM_QUEUES), ground.producer()
    consumer = ground.push(topic, orderly=True, batch=32, brief=True)
    offsets = producer.call(
        "producer.stream", topic=topic, queues=STREAM_QUEUES, count=STREAM_COUNT
    )
    each = STREAM_COUNT // STREAM_QUEUES
    assert offsets == {str(queue): list(range(each)) for queue in range(STREAM_QUEUES)}
    received = consumer.wait(STREAM_COUNT, 300)
    for queue in range(STREAM_QUEUES):
        mine = [message for message in received if message["queue"] == queue]
        assert [message["offset"] for message in mine] == list(range(each))
        assert texts(mine) == [f"q{queue}-{number}" for number in range(each)]


@scenario("broadcasting: every member gets everything")
def broadcasting(ground: Ground) -> None:
    topic, producer = ground.topic(4), ground.producer()
    members = [ground.push(topic, f"-{n}", model="BROADCASTING") for n in range(2)]
    shares(topic, members, [[0, 1, 2, 3]] * 2)
    expected = sorted(f"m{number}" for number in range(20))
    for text in expected:
        producer.send(topic, text.encode())
    for member in members:
        assert sorted(texts(member.wait(20))) == expected


@scenario("tags: only what was asked for, also when hashes collide")
def tags(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    # Go hashes the bytes of a tag and not its characters, so that others look past such tags.
    word = "size" if ground.language == GO else "größe"
    some = ground.push(topic, "-some", group=ground.group("-some"), expression=f"A || C||{word}")
    one, other = COLLIDING_TAGS
    collided = ground.push(topic, "-hash", group=ground.group("-hash"), expression=one)
    every = ground.push(topic, "-all", group=ground.group("-all"))
    for number, tag in enumerate(["A", "B", "C", None, word, other, one, "A"]):
        producer.send(topic, f"{number}-{tag}".encode(), queue=0, tags=tag)
    assert len(every.wait(8)) == 8
    assert sorted(texts(some.wait(4))) == ["0-A", "2-C", f"4-{word}", "7-A"]
    assert texts(collided.wait(1)) == [f"6-{one}"]
    producer.send(topic, b"end", queue=0, tags="C")
    assert texts(some.wait(5))[-1] == "end"
    assert len(collided.received()) == 1


@scenario("retries and dead letters", also_binary=True)
def retries(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    ground.retry_topic()
    # Node leaves the pauses to the broker: 10 s before the first retry, 30 s before the second.
    most = 1 if ground.language == NODE else 2
    # A retry topic is routed with the first heartbeat; where it is not, the client must ask again.
    # Patient: a Java client drops a connection whose heartbeat is answered late, and sends back
    # once more what was under way there.
    consumer = ground.push(
        topic, failures=100, retries_max=most, delay_level=1, route_ms=1_000, heartbeat_ms=1_000,
        patient=True,
    )  # fmt: skip
    sent = producer.send(topic, b"fail", queue=0, tags="T", keys="K", property=["p=1"])
    producer.send(topic, b"good", queue=0)
    received = consumer.wait(most + 2, 120)
    failed = [message for message in received if message["text"] == "fail"]
    assert [message["reconsume_times"] for message in failed] == list(range(most + 1))
    for message in failed:
        assert (message["topic"], message["tags"], message["keys"]) == (topic, "T", "K")
        assert message["properties"]["p"] == "1"
    for message in failed[1:]:
        assert message["properties"]["RETRY_TOPIC"] == topic
        assert message["properties"]["ORIGIN_MESSAGE_ID"] == sent["offset_msg_id"]
    [dead] = dead_letters(ground)
    assert (dead["text"], dead["tags"], dead["keys"]) == ("fail", "T", "K")
    assert dead["properties"]["RETRY_TOPIC"] == topic
    if "msg_id" in sent:
        assert {message["msg_id"] for message in [*failed, dead]} == {sent["msg_id"]}
    assert len(consumer.received()) == most + 2


def dead_letters(ground: Ground) -> list[Row]:
    """The dead letters of the ground's group; there is one queue for them."""
    topic = f"%DLQ%{ground.group()}"
    wait_until(lambda: ground.routes(topic), 60, f"a route to {topic}")
    producer = ground.producer()
    # 4.9.7 delays a letter of an orderly consumer by the level that its client asked for.
    wait_until(lambda: producer.offsets(topic)["max"] > 0, 90, "a dead letter")
    return pulled(ground.stored(topic), producer.offsets(topic)["max"])


@scenario("delayed messages come when they are due")
def delayed(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    consumer = ground.push(topic)
    producer.send(topic, b"later", delay_level=1, keys="K", tags="T", property=["p=1"])
    producer.send(topic, b"now")
    later, now = sorted(consumer.wait(2), key=lambda message: message["text"])
    assert (later["text"], now["text"]) == ("later", "now")
    # By its own times: the other message may have been sent after a second as well.
    assert later["store_timestamp"] - later["born_timestamp"] >= 990
    assert (later["topic"], later["tags"], later["keys"]) == (topic, "T", "K")
    assert later["properties"]["p"] == "1"


def shares(topic: str, members: list[PushConsumer], expected: list[list[int]]) -> None:
    """Wait until the members hold exactly these queues, whoever holds which share."""

    def settled() -> bool:
        return sorted(member.queues(topic) for member in members) == sorted(expected)

    wait_until(settled, REBALANCE_TIMEOUT_S, f"{expected} held by {len(members)} members")


@scenario("members that join, leave and die share the queues anew")
def rebalance(ground: Ground) -> None:
    topic, producer = ground.topic(6), ground.producer()
    # Node does not listen to the broker's notice and looks for members only now and then.
    soon = {"rebalance_ms": 1_000}
    first = ground.push(topic, "-a", **soon)
    shares(topic, [first], [[0, 1, 2, 3, 4, 5]])
    second = ground.push(topic, "-b", **soon)
    shares(topic, [first, second], [[0, 1, 2], [3, 4, 5]])
    with ground.second_process() as other:
        third = ground.push(topic, "-c", client=other, **soon)
        shares(topic, [first, second, third], [[0, 1], [2, 3], [4, 5]])
        for number in range(30):
            producer.send(topic, f"three-{number}".encode(), queue=number % 6)
        everybody = [first, second, third]
        wait_until(lambda: sum(len(m.received()) for m in everybody) >= 30, 60, "30 messages")
        assert [len(member.received()) for member in everybody] == [10, 10, 10]
        other.kill()
        shares(topic, [first, second], [[0, 1, 2], [3, 4, 5]])
    second.close()
    shares(topic, [first], [[0, 1, 2, 3, 4, 5]])
    for number in range(12):
        producer.send(topic, f"one-{number}".encode(), queue=number % 6)
    expected = {f"one-{number}" for number in range(12)}
    first.wait(lambda got: expected <= set(texts(got)))


@scenario(
    "an orderly member that dies hands its locked queues over",
    slow_with=EVERY_CLIENT,
    lacking=NO_ORDER,
)
def orderly_rebalance(ground: Ground) -> None:
    topic, producer = ground.topic(2), ground.producer()
    with ground.second_process() as other:
        dying = ground.push(topic, "-a", client=other, orderly=True)
        shares(topic, [dying], [[0, 1]])
        producer.send(topic, b"before", queue=0)
        dying.wait(1)
        other.kill()
    survivor = ground.push(topic, "-b", orderly=True)
    for queue in (0, 1):
        producer.send(topic, f"after-{queue}".encode(), queue=queue)
    # The locks of the dead end with its connection or with their own time of 60 s.
    received = survivor.wait(lambda got: {"after-0", "after-1"} <= set(texts(got)), 150)
    # Nothing past what the dead one had not yet reported may come twice.
    assert set(texts(received)) <= {"before", "after-0", "after-1"}


@scenario(
    "the VIP channel: clients use the port two below",
    lacking={
        GO: "this library has a setting for it that nothing reads",
        NODE: "this library has no VIP channel",
        OURS: "this library does not use the VIP port",
    },
)
def vip_channel(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer("vip", vip=True)
    sent = [producer.send(topic, b"vip %d" % n, queue=0) for n in range(5)]
    assert [result["queue_offset"] for result in sent] == list(range(5))
    consumer = ground.push(topic, vip=True)
    assert sorted(texts(consumer.wait(5))) == [f"vip {n}" for n in range(5)]
    assert open_connections(ground.cluster.port - 2) > 0


def open_connections(port: int) -> int:
    """Connections to a port of this machine that are established now."""
    count = 0
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for fields in map(str.split, Path(table).read_text().splitlines()):
            # The third column is the peer's address in hexadecimal, the fourth the state.
            count += fields[3] == "01" and fields[2].endswith(f":{port:04X}")
    return count


@scenario("a waiting consumer gets a message at once", alone=True)
def long_poll_latency(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    consumer = ground.push(topic)
    producer.send(topic, b"warm up")
    consumer.wait(1)
    # 10 ms between two sends give a warm consumer time to be waiting again.
    spent_us = producer.call(
        "producer.latency", topic=topic, rounds=WAKING_ROUNDS, gap_ms=10, mark=f"{topic}-"
    )
    assert len(spent_us) == WAKING_ROUNDS
