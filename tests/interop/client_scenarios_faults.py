"""A broker that stops, dies and comes back while real clients send and consume."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.interop.client_ground import NODE, Ground, Producer, scenario, texts
from tests.interop.driven_client import ClientError
from tests.interop.server_processes import BROKER_NAME, OURS, wait_until

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
    # The member that follows begins where this one ended. Before it goes, this one must be done
    # with all that is stored, also with what the producer took for failed.
    wait_until(lambda: consumer.done(topic) == _stored(producer, topic), 60, "everything done")
    consumer.close()
    follower = ground.push(topic, "-next", **soon)
    wait_until(lambda: len(follower.queues(topic)) == 4, 60, "all four queues")
    ground.producer("-last").send(topic, b"last", queue=0)
    assert texts(follower.wait(1)) == ["last"]


def _stored(producer: Producer, topic: str) -> int:
    """Messages in the four queues of a topic."""
    return sum(int(producer.offsets(topic, queue)["max"]) for queue in range(4))


# The words of a body are the answers of its producer: first of the local transaction, then of each
# check, for which there may be a reason more often than once.
_ENDS = {
    "commit": ("commit",) * 5,
    "rollback": ("rollback",) * 5,
    "unknown": ("unknown", *("commit",) * 4),
    "late": ("unknown", "unknown", *("commit",) * 3),
}
# Five seconds.
_DELAY_LEVEL = 2


@scenario(
    "delays and transactions that wait while the broker is killed and stopped",
    strict=True,
    alone=True,
    slow_with=("Java 5.5.0", "Java 4.9.8", "Go 2.1.2", "Node 3.12.0", "ours"),
)
def waiting_through_kills(ground: Ground) -> None:
    soon: dict[str, Any] = {"route_ms": 1_000, "heartbeat_ms": 1_000}
    # Nothing is sent again but under another name.
    once: dict[str, Any] = {"timeout_ms": 3_000, "retries": 0, **soon}
    topic, producer = ground.topic(2), ground.producer(**once)
    halves = None if ground.language == NODE else ground.transactions(**once)
    consumer = ground.push(topic, **soon)
    rng = random.Random(f"{ground.client.version} {ground.language}")
    wanted: set[str] = set()

    def delayed(body: str) -> None:
        producer.send(topic, body.encode(), delay_level=_DELAY_LEVEL)

    def half(body: str) -> None:
        sent = ground.client.call(
            "transaction.send", producer=halves, topic=topic, body=body.encode(),
            broker=BROKER_NAME,
        )  # fmt: skip
        assert sent["status"] == "SEND_OK"

    def plain(body: str) -> None:
        producer.send(topic, body.encode())

    for round_number, kill in enumerate((True, False)):
        for number in range(5):
            wanted.add(_acknowledged(delayed, f"delay-{round_number}-{number}"))
            for end, words in _ENDS.items() if halves is not None else ():
                body = _acknowledged(half, "-".join((*words, str(round_number), str(number))))
                wanted |= set() if end == "rollback" else {body}
        # The moment is a matter of chance.
        for number in range(rng.randrange(600)):
            wanted.add(_acknowledged(plain, f"plain-{round_number}-{number}"))
        if kill:
            ground.cluster.broker.kill()
        else:
            ground.cluster.broker.stop()
        ground.cluster.start_broker()
    received = consumer.wait(lambda got: wanted <= set(texts(got)), 300)
    assert not [text for text in texts(received) if text.startswith("rollback")]
    if ground.cluster.kind == OURS:
        # Each exactly once in the log; RocketMQ delivers again what it had not noted yet.
        stored = {(message["queue"], message["offset"]): message["text"] for message in received}
        counts = Counter(stored.values())
        waiting = {text for text in wanted if not text.startswith("plain")}
        assert {text: counts[text] for text in waiting if counts[text] != 1} == {}


def _acknowledged(send: Callable[[str], None], body: str) -> str:
    """Send until it is acknowledged, each time under another name; the one that was."""
    found: list[str] = []
    attempts = itertools.count()

    def tried() -> bool:
        text = f"{body}-{next(attempts)}"
        try:
            send(text)
        except ClientError:
            return False
        found.append(text)
        return True

    wait_until(tried, 60, f"an acknowledgement of {body}")
    return found[0]
