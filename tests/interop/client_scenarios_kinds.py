"""Kinds of messages that need more than a send: transactions, requests, SQL filters, shards."""

from __future__ import annotations

import pytest

from tests.interop.client_ground import GO, JAVA, NODE, OURS, Ground, scenario, texts
from tests.interop.driven_client import ClientError
from tests.interop.server_processes import BROKER_NAME, wait_until

REQUEST_LIMIT_MS = 60_000
# Java chooses a queue by an argument that it does not send.
SHARDING_KEYS = {GO: "SHARDING_KEY", NODE: "__SHARDING_KEY", OURS: "__SHARDINGKEY"}


@scenario(
    "transactions: committed, rolled back, and decided by the broker's checks",
    lacking={NODE: "this library has no transactions"},
)
def transactions(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.transactions()
    consumer = ground.push(topic)
    bodies = ["commit-1", "rollback-2", "unknown-commit-3", "unknown-rollback-4", "commit-5"]
    bodies.append("unknown-unknown-commit-6")
    for body in bodies:
        sent = ground.client.call(
            "transaction.send", producer=producer, topic=topic, body=body.encode(), tags="T",
            keys="K", broker=BROKER_NAME,
        )  # fmt: skip
        assert sent["status"] == "SEND_OK"
    wanted = {"commit-1", "commit-5", "unknown-commit-3", "unknown-unknown-commit-6"}
    received = consumer.wait(lambda got: wanted <= set(texts(got)), 90)
    assert {(message["tags"], message["keys"]) for message in received} == {("T", "K")}

    def checked() -> list[str]:
        return texts(ground.client.received(producer))

    wait_until(lambda: "unknown-rollback-4" in checked(), 60, "a check of what is rolled back")
    assert checked().count("unknown-unknown-commit-6") >= 2
    assert not {"commit-1", "rollback-2", "commit-5"} & set(checked())
    assert sorted(texts(consumer.received())) == sorted(wanted)


@scenario(
    "requests and their replies",
    lacking={NODE: "this library has no request and reply"},
)
def request_reply(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    answering = ground.producer("-answering", group=ground.group("-answering"))
    ground.push(topic, reply_by=answering.name)
    if ground.language == GO:
        # Its producers are known to a broker only after the first heartbeat that follows a send.
        warm = ground.topic(mark="-warm")
        producer.send(warm, b"here I am")
        wait_until(
            lambda: ground.observer.has_producer(ground.producer_group(), warm), 60, "a heartbeat"
        )
    for number in range(3):
        reply = producer.call(
            "producer.request", topic=topic, body=b"question %d" % number,
            limit_ms=REQUEST_LIMIT_MS,
        )  # fmt: skip
        assert reply["text"] == f"re: question {number}"
        assert reply["properties"]["CORRELATION_ID"]
    nobody = ground.topic(mark="-nobody")
    with pytest.raises(ClientError):
        producer.call("producer.request", topic=nobody, body=b"?", limit_ms=1_500)


@scenario("SQL92 filters: backlog and waiting consumers, and text that is refused")
def sql_filters(ground: Ground) -> None:
    topic, producer = ground.topic(2), ground.producer()

    def send(text: str, *properties: str) -> None:
        producer.send(topic, text.encode(), property=list(properties))

    for number in range(40):
        send(f"old{number}", f"price={number}", f"color={'red' if number % 2 else 'blue'}")
    consumer = ground.push(topic, sql="price BETWEEN 10 AND 19 AND color = 'red'")
    expected = {f"old{number}" for number in range(11, 20, 2)}
    assert set(texts(consumer.wait(len(expected)))) == expected
    # From now on its pulls are held; only what matches may end them.
    for number in range(10):
        send(f"other{number}", f"price={number}")
    send("plain")
    send("new1", "price=12", "color=red")
    send("no number", "price=many", "color=red")
    send("new2", "price=13", "color=red")
    received = consumer.wait(lambda got: {"new1", "new2"} <= set(texts(got)))
    assert sorted(texts(received)) == sorted({*expected, "new1", "new2"})
    if ground.language == JAVA:
        # The others do not ask the broker about the text before they start.
        with pytest.raises(ClientError) as refused:
            ground.push(topic, "-bad", group=ground.group("-bad"), sql="price >")
        assert refused.value.code == 23 or "23" in str(refused.value)


@scenario("messages of one sharding key go to one queue, in order")
def sharding_keys(ground: Ground) -> None:
    topic, producer = ground.topic(4), ground.producer()
    queues: dict[str, set[int]] = {}
    sent: dict[tuple[str, int], list[str]] = {}
    for number in range(40):
        shard, text = f"shard{number % 5}", f"m{number}"
        queue = producer.send_ordered(topic, text.encode(), shard)["queue"]
        queues.setdefault(shard, set()).add(queue)
        sent.setdefault((shard, queue), []).append(text)
    if ground.language != NODE:
        # Node's library takes queue 0 for no queue and spreads what should go there.
        assert all(len(chosen) == 1 for chosen in queues.values())
    received = ground.push(topic).wait(40)
    assert sorted(texts(received)) == sorted(f"m{number}" for number in range(40))
    for message in received if ground.language != JAVA else ():
        shard = f"shard{int(message['text'][1:]) % 5}"
        assert message["properties"][SHARDING_KEYS[ground.language]] == shard
