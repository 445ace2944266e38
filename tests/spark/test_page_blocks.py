"""Python blocks of the pages for users run as they are written, but for addresses and directories.

Those of the README, of docs/start.md and of docs/python-client.md have tests of their own.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.patient_client import PATIENT_BROKER

PAGES = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ORDERS = 20
Page = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedBroker]:
    """A broker with orders, and a change of one."""
    topics = {"orders": 2, "totals": 1, "copies": 2, "orders-bad": 1, "shop-orders": 1}
    with EmbeddedBroker(topics=topics, properties=PATIENT_BROKER) as running:
        order = {"city": "Ulm", "amount": 1.5, "at": "2024-05-31T12:00:00Z"}
        running.produce(
            "orders",
            [
                {"value": json.dumps({**order, "orderId": f"o{number}"}), "key": f"order-{number}"}
                for number in range(_ORDERS)
            ],
        )
        change = {"before": None, "after": {"id": 1, "city": "Ulm"}, "op": "c", "ts_ms": 1}
        running.produce("shop-orders", [json.dumps(change)])
        yield running


@pytest.fixture
def page(spark: Any, cluster: EmbeddedBroker, tmp_path: Path) -> Iterator[Page]:
    """`page(name, *parts, **names)` runs blocks of a page; returns the names after them.

    A part is text of one block only. The value of a block that is one expression is called `shown`.
    """

    def run(name: str, *parts: str, **names: Any) -> dict[str, Any]:
        blocks = _BLOCK.findall((PAGES / name).read_text(encoding="utf-8"))
        servers = {"rmq.namesrv.addr": cluster.name_server}
        found = {"spark": spark, "options": servers, "connection": servers, **names}
        for part in parts:
            [block] = [block for block in blocks if part in block]
            code = block.replace("127.0.0.1:9876", cluster.name_server)
            code = code.replace("checkpoints/", f"{tmp_path}/")
            if isinstance(ast.parse(code).body[0], ast.Expr):
                code = f"shown = {code}"
            script = tmp_path / "block.py"
            script.write_text(code, encoding="utf-8")
            found = runpy.run_path(str(script), found)
        if "query" in found:
            found["query"].processAllAvailable()
        return found

    yield run
    for query in spark.streams.active:
        query.stop()


def streamed(frame: Any, checkpoint: Path) -> list[Any]:
    """All rows of a stream."""
    rows: list[Any] = []
    writer = frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows


def test_source(page: Page) -> None:
    found = page("source.md", "history = ", "key = 'order-17'")
    assert found["history"].count() == _ORDERS
    [row] = found["shown"].collect()
    assert json.loads(row.value)["orderId"] == "o17"


def test_sink(page: Page, spark: Any, cluster: EmbeddedBroker, tmp_path: Path) -> None:
    events = spark.readStream.format("rmq").options(**cluster.options)
    events = events.options(subscribe="shop-orders", startingOffsets="earliest").load()
    events = events.selectExpr("value", "'a' AS orderId")
    before = len(cluster.consume("orders"))
    page(
        "sink.md",
        "events.selectExpr",
        "sink_batches",
        events=events,
        frame=spark.createDataFrame([(b"{}",)], ["value"]),
    )
    assert len(cluster.consume("orders")) == before + 2


def test_payloads(page: Page, cluster: EmbeddedBroker, tmp_path: Path) -> None:
    assert page("payloads.md", "keyColumn")["query"].lastProgress is not None
    [row] = page("payloads.md", "inferSchema")["orders"].where("key = 'order-3'").collect()
    assert (row.value.orderId, row.value.city, row.value.amount) == ("o3", "Ulm", 1.5)
    earliest = {**cluster.options, "startingOffsets": "earliest"}
    changes = page("payloads.md", "debezium-json", connection=earliest)["changes"]
    [change] = streamed(changes.select("op", "after.city"), tmp_path / "changes")
    assert tuple(change) == ("c", "Ulm")


def test_bad_records(page: Page, cluster: EmbeddedBroker, tmp_path: Path) -> None:
    cluster.produce("orders", ["bad"])
    [row] = page("payloads.md", '"badRecords", "null"')["bad"].collect()
    assert bytes(row.badValue) == b"bad"
    earliest = {**cluster.options, "startingOffsets": "earliest"}
    orders = page("payloads.md", "deadLetterTopic", connection=earliest)["orders"]
    assert len(streamed(orders, tmp_path / "orders")) >= _ORDERS
    [bad] = cluster.consume("orders-bad")
    assert bad.body == b"bad"


def test_migration(page: Page, cluster: EmbeddedBroker) -> None:
    page("migration.md", "includeHeaders")
    copied = len(cluster.consume("copies"))
    assert copied >= _ORDERS
    page("migration.md", "rocketmq-spark")
