"""`describe`: tables about a cluster, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core import MessageQueue, OutgoingMessage, SyncAdmin, SyncProducer, errors
from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import DESCRIBED, SourceOptions
from pyspark_rmq.source.description import DESCRIPTIONS, describe, described_columns


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"orders": 2, "other": 1}) as broker:
        with SyncProducer(broker.name_server) as producer:
            for number in range(5):
                queue = MessageQueue("orders", "broker-a", 1)
                producer.send(OutgoingMessage("orders", b"%d" % number), queue=queue)
            producer.send(OutgoingMessage("%DLQ%billing", b"bad"))
        with SyncAdmin(broker.name_server) as admin:
            for name in ("billing", "CID_orders"):
                admin.create_group(name)
            admin.commit_offset("billing", MessageQueue("orders", "broker-a", 1), 3)
        yield broker
    connections.close_connections()


def rows(broker: EmbeddedBroker, kind: str, **more: str) -> list[dict[str, Any]]:
    texts = {
        **broker.options,
        "describe": kind,
        **{k.replace("__", "."): v for k, v in more.items()},
    }
    options = SourceOptions.parse(texts).for_batch()
    connected = connections.connect(options.connection)
    found = connected.call(describe(connected.client, options))
    names = [text.split()[0] for text in DESCRIPTIONS[kind].schema.split(",")]
    assert all(len(row) == len(names) for row in found)
    return [dict(zip(names, row, strict=True)) for row in found]


def test_every_kind_has_a_table() -> None:
    assert tuple(DESCRIPTIONS) == DESCRIBED


def test_topics(cluster: EmbeddedBroker) -> None:
    found = {row["topic"]: row for row in rows(cluster, "topics")}
    assert set(found) == {"orders", "other"}
    assert (found["orders"]["readQueues"], found["orders"]["messages"]) == (2, 5)
    assert (found["orders"]["perm"], found["orders"]["broker"]) == ("RW", "broker-a")
    assert found["orders"]["newest"] is not None
    assert found["other"]["newest"] is None


def test_queues(cluster: EmbeddedBroker) -> None:
    found = rows(cluster, "queues", subscribe="orders")
    assert [(r["partition"], r["minOffset"], r["maxOffset"], r["messages"]) for r in found] == [
        (0, 0, 0, 0),
        (1, 0, 5, 5),
    ]
    assert {row["topic"] for row in rows(cluster, "queues", subscribePattern="o.*")} == {
        "orders",
        "other",
    }


def test_groups_and_lag(cluster: EmbeddedBroker) -> None:
    found = {row["group"]: row for row in rows(cluster, "groups")}
    assert (found["billing"]["members"], found["billing"]["consumeEnabled"]) == (0, True)
    # Names of applications may begin as those of some servers.
    assert set(found) == {"billing", "CID_orders"}
    lag = rows(cluster, "lag", rmq__group="billing", subscribe="orders")
    assert {row["partition"]: row["lag"] for row in lag}[1] == 2
    assert {row["partition"]: row["committedOffset"] for row in lag}[1] == 3
    with pytest.raises(errors.InvalidArgument, match="no broker knows group absent"):
        rows(cluster, "lag", rmq__group="absent")


def test_dead_letters(cluster: EmbeddedBroker) -> None:
    found = rows(cluster, "dlq")
    assert sum(row["messages"] for row in found) == 1
    assert {(row["group"], row["topic"]) for row in found} == {("billing", "%DLQ%billing")}
    assert rows(cluster, "dlq", rmq__group="other") == []


def test_columns() -> None:
    assert described_columns("queues", ["maxOffset", "TOPIC"]) == [4, 0]
    with pytest.raises(errors.InvalidArgument, match="has no column 'nothing'"):
        described_columns("lag", ["nothing"])


def test_describe_is_refused_for_streams() -> None:
    options = SourceOptions.parse({"nameServer": "h:1", "describe": "lag"})
    with pytest.raises(errors.InvalidArgument, match="it shows the state at one moment"):
        options.for_stream()
