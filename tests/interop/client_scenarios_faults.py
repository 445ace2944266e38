"""A broker that stops, dies and comes back while real clients send and consume."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.interop.client_ground import NODE, Ground, scenario, texts
from tests.interop.server_processes import wait_until

# After these many messages the broker goes, and after as many more the scenario ends.
BEFORE = 200


# Go tells a broker that came back about its consumers only with its next heartbeat.
@scenario(
    "a broker that is stopped and started again", strict=True, alone=True, slow_with=("Go 2.1.2",)
)
def broker_restart(ground: Ground) -> None:
    consumption_survives(ground, kill=False)


# Pulls of 4.9 clients that a dead connection left unanswered end with their own 30 seconds.
@scenario(
    "a broker that is killed and started again",
    strict=True,
    alone=True,
    slow_with=("Java 4.9.8", "Go 2.1.2", "Node 3.12.0"),
)
def broker_killed(ground: Ground) -> None:
    consumption_survives(ground, kill=True)


def consumption_survives(ground: Ground, *, kill: bool) -> None:
    # Clients notice within a second, not within half a minute, that the broker is back.
    soon: dict[str, Any] = {"route_ms": 1_000, "heartbeat_ms": 1_000}
    topic, producer = ground.topic(4), ground.producer(timeout_ms=3_000, **soon)
    consumer = ground.push(topic, **soon)
    producer.call("producer.flood", topic=topic, gap_ms=2)
    consumer.wait(BEFORE)
    if kill:
        ground.cluster.broker.kill()
    else:
        ground.cluster.broker.stop()
    reached = len(consumer.received())
    ground.cluster.start_broker()
    consumer.wait(reached + BEFORE, 90)
    numbers = producer.call("producer.flood_end")
    acknowledged = {f"n{number}" for number in numbers["acknowledged"]}
    received = consumer.wait(lambda got: acknowledged <= set(texts(got)), 60)
    # A number that failed may be stored or not. One that was acknowledged must come.
    unknown = set(texts(received)) - acknowledged
    assert unknown <= {f"n{number}" for number in numbers["failed"]}
    # The consumer lived on and keeps its place: no offset is delivered twice.
    places = Counter((message["queue"], message["offset"]) for message in received)
    assert {place: count for place, count in places.items() if count > 1} == {}
    # Only a send that the producer itself repeated may be stored twice, under one id.
    repeated = [text for text, count in Counter(texts(received)).items() if count > 1]
    for text in repeated if ground.language != NODE else ():
        assert len({m["msg_id"] for m in received if m["text"] == text}) == 1
    # The member that follows begins where this one ended.
    consumer.close()
    follower = ground.push(topic, "-next", **soon)
    wait_until(lambda: len(follower.queues(topic)) == 4, 60, "all four queues")
    producer.send(topic, b"last", queue=0)
    assert texts(follower.wait(1)) == ["last"]
