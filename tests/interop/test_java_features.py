"""Less common features of unmodified Java clients: they see on our broker what Apache's gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.interop.client_ground import Ground, Scenario, texts
from tests.interop.client_kinds import JAVA_CLIENTS
from tests.interop.client_matrix import KINDS, RunsOfKinds
from tests.interop.client_scenarios_send import pulled
from tests.interop.driven_client import ClientError
from tests.interop.peer_releases import COMPLETE
from tests.interop.server_processes import BROKER_NAME, wait_until

pytestmark = pytest.mark.interop

ONLY_5X = frozenset({"auto_batch", "light_heartbeats"})
ODD = {"größe": "ü€😀\t=;:,\"'{}", "a b": "x y", "long": "x" * 20_000}


def feature(ground: Ground, name: str, topic: str, **arguments: Any) -> Any:
    place = {"ns": ground.cluster.name_server_address, "broker": BROKER_NAME}
    return ground.client.call(
        f"feature.{name}", topic=topic, group=ground.group(), **place, **arguments
    )


def committed(ground: Ground, topic: str, offset: int) -> None:
    wait_until(
        lambda: ground.observer.committed(ground.group(), topic) == offset, 60, "its progress"
    )


def namespace(ground: Ground) -> None:
    topic = f"t-{ground.group()}"
    ground._create_topic(f"NS1%{topic}", 1)
    assert feature(ground, "namespace", topic, namespace="NS1") == [f"{topic} 0", f"{topic} 1"]
    assert ground.routes(f"%RETRY%NS1%{ground.group()}")


def trace(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    message_id = feature(ground, "trace", topic)

    def traces() -> list[bytes]:
        try:
            found = producer.call(
                "admin.query", topic="RMQ_SYS_TRACE_TOPIC", key=message_id, begin=0, end=1 << 62
            )
        except ClientError:
            return []
        return [message["body"] for message in found]

    wait_until(lambda: len(traces()) >= 2, 60, "the traces of a send and a consumption")
    kinds = {body.split(b"\x01")[0] for body in traces()}
    assert {b"Pub", b"SubBefore"} <= kinds, kinds


def commit_by_hand(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    producer.send_batch(topic, [b"a", b"b", b"c"], queue=0)
    assert feature(ground, "commit_by_hand", topic) == ["a", "b", "c"] * 2
    committed(ground, topic, 3)


def partly(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    producer.send_batch(topic, [b"a", b"b", b"c", b"d"], queue=0)
    assert feature(ground, "partly", topic) == ["a 0", "b 0", "c 0", "c 1", "d 0", "d 1"]
    committed(ground, topic, 4)


def suspended(ground: Ground) -> None:
    found = feature(ground, "suspended", ground.topic())
    # What the pull that was waiting then brings is still given out.
    assert "later" not in found["early"]
    assert sorted(found["all"]) == ["before", "later", "meanwhile"]


def callbacks(ground: Ground) -> None:
    topic = ground.topic()
    assert feature(ground, "callbacks", topic) == ["FOUND one", "FOUND two"]
    retries = f"%RETRY%{ground.group()}"
    producer = ground.producer()
    wait_until(lambda: ground.routes(retries), 60, "the topic of retries")
    wait_until(lambda: producer.offsets(retries)["max"] == 1, 60, "what was sent back")
    [back] = pulled(ground.stored(retries), 1)
    assert (back["text"], back["reconsume_times"]) == ("one", 1)
    assert back["properties"]["RETRY_TOPIC"] == topic


def auto_batch(ground: Ground) -> None:
    topic = ground.topic()
    ids = feature(ground, "auto_batch", topic, count=50)
    stored = pulled(ground.stored(topic), 50)
    assert sorted(texts(stored)) == sorted(f"m{number}" for number in range(50))
    assert {message["msg_id"] for message in stored} == set(ids)


def light_heartbeats(ground: Ground) -> None:
    assert feature(ground, "light_heartbeats", ground.topic()) == ["m1", "m2", "m3"]


def odd_properties(ground: Ground) -> None:
    topic, producer = ground.topic(), ground.producer()
    given = [f"{name}={value}" for name, value in ODD.items()]
    producer.send(topic, b"odd", queue=0, tags="t-1_é", keys="k 1", property=given)
    [message] = ground.push(topic, expression="t-1_é").wait(1)
    assert {name: message["properties"][name] for name in ODD} == ODD
    assert (message["tags"], message["keys"]) == ("t-1_é", "k 1")
    with pytest.raises(ClientError) as refused:
        producer.send(topic, b"too long", queue=0, property=[f"long={'x' * 40_000}"])
    assert refused.value.code == 13
    assert producer.offsets(topic)["max"] == 1


FEATURES: dict[str, Callable[[Ground], None]] = {
    run.__name__: run
    for run in (
        namespace, trace, commit_by_hand, partly, suspended, callbacks, auto_batch,
        light_heartbeats, odd_properties,
    )
}  # fmt: skip


def _cases() -> Iterator[Any]:
    for client in JAVA_CLIENTS if COMPLETE else JAVA_CLIENTS[:1]:
        for name, run in FEATURES.items():
            if client.startswith("Java 5") or name not in ONLY_5X:
                case = Scenario(f"feature-{name}", name, run, False, False, "JSON", ())
                yield pytest.param(client, case, id=f"{client.replace(' ', '-')}-{name}")


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunsOfKinds]:
    found = RunsOfKinds(request.session, "test_a_feature", tmp_path_factory.mktemp)
    yield found
    found.close()


@pytest.mark.parametrize(("client", "case"), list(_cases()))
@pytest.mark.parametrize("kind", KINDS)
def test_a_feature(client: str, case: Scenario, kind: str, runs: RunsOfKinds) -> None:
    runs.check(client, case, kind)
