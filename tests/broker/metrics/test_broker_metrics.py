"""The metrics of a running broker: names, values, limits, and the HTTP endpoint."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker_core.broker.broker import Broker
from broker_core.broker.metrics import broker_metrics as metrics_module
from broker_core.codec.wire.bodies.heartbeat_data import (
    ConsumerData,
    HeartbeatData,
    encode_heartbeat,
)
from broker_core.codec.wire.bodies.subscription_data import parse_tag_expression
from tests.broker.metrics.http_get import fetch
from tests.broker.running_broker import UNIQUE, Asker, broker_config, running, until

PAGE = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}

Samples = Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]


def parsed(answer: bytes) -> Samples:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK"), head
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            assert sample.labels["cluster"] == "DefaultCluster"
            assert sample.labels["node_type"] == "broker"
            assert sample.labels["node_id"] == "broker-a"
            rest = {
                name: value
                for name, value in sample.labels.items()
                if name not in ("cluster", "node_type", "node_id")
            }
            found.setdefault(sample.name, {})[tuple(sorted(rest.items()))] = sample.value
    return found


def address_of(broker: Broker) -> str:
    found = broker._observability
    assert found is not None
    return found.address


async def use(asker: Asker) -> None:
    """Three messages to T, of which group CG has read one."""
    await asker.make_topic("T", 1)
    for number in range(3):
        assert (await asker.send("T", b"canary-body-%d" % number)).code == 0
    consumer = ConsumerData("CG", subscriptions=(parse_tag_expression("T", "*"),))
    await asker.ask(34, encode_heartbeat(HeartbeatData("id", ("PG",), (consumer,))))
    await until(lambda: asker.broker.context.store.offsets("T", 0)[1] == 3)
    assert (await asker.pull("T", maxMsgNums=1)).code == 0
    await asker.ask(15, consumerGroup="CG", topic="T", queueId=0, commitOffset=1)


def test_values_of_a_running_broker(tmp_path: Path) -> None:
    async def scenario() -> tuple[Samples, bytes]:
        async with running(broker_config(tmp_path, **PROM)) as asker:
            await use(asker)
            answer = await fetch(address_of(asker.broker))
            return parsed(answer), answer

    found, answer = asyncio.run(scenario())
    topic = (("is_system", "false"), ("topic", "T"))
    group = (("consumer_group", "CG"), ("topic", "T"))
    assert found["rocketmq_messages_in_total"][topic] == 3
    assert found["rocketmq_throughput_in_total"][topic] > 3 * len("canary-body-0")
    out = (("consumer_group", "CG"), *topic)
    assert found["rocketmq_messages_out_total"][out] == 1
    assert found["rocketmq_consumer_lag_messages"][group] == 2
    assert found["rocketmq_consumer_ready_messages"][group] == 2
    assert 0 <= found["rocketmq_consumer_lag_latency"][group] < 60_000
    assert found["rocketmq_broker_permission"][()] == 6
    assert found["rocketmq_storage_size"][()] > 0
    assert found["rocketmq_storage_dispatch_behind_bytes"][()] == 0
    assert sum(found["rocketmq_consumer_connections"].values()) == 1
    assert sum(found["rocketmq_producer_connections"].values()) == 1
    assert found["rocketmq_half_messages"][()] == 0
    assert found["rmq_connections"][()] >= 1
    assert found["rmq_metrics_left_out_series"][()] == 0
    assert found["rocketmq_rpc_latency_count"][(("request_code", "310"),)] == 3
    assert found["rocketmq_rpc_latency_bucket"][(("le", "+Inf"), ("request_code", "310"))] == 3
    assert b"canary" not in answer


def test_the_page_has_every_name(tmp_path: Path) -> None:
    async def scenario() -> Samples:
        async with running(broker_config(tmp_path, **PROM)) as asker:
            await use(asker)
            return {
                line.split(" ")[2]: {}
                for line in (await fetch(address_of(asker.broker))).decode().splitlines()
                if line.startswith("# TYPE")
            }

    names = set(asyncio.run(scenario()))
    documented = set(re.findall(r"^\| `((?:rocketmq|rmq)_\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert names == documented


# From Apache's broker 5.5: the metrics that users graph.
APACHE = re.findall(
    r"\w+",
    """
messages_in_total messages_out_total throughput_in_total throughput_out_total message_size
consumer_lag_messages consumer_lag_latency consumer_inflight_messages consumer_queueing_latency
consumer_ready_messages send_to_dlq_messages_total rpc_latency processor_watermark
broker_permission storage_size storage_flush_behind_bytes storage_dispatch_behind_bytes
storage_message_reserve_time producer_connections consumer_connections half_messages
commit_messages_total rollback_messages_total finish_message_latency timing_messages
timer_enqueue_lag timer_enqueue_latency timer_enqueue_total timer_dequeue_lag
timer_dequeue_latency timer_dequeue_total timer_message_snapshot delay_message_latency
topic_number consumer_group_number topic_create_execution_time
consumer_group_create_execution_time pop_revive_lag
""",
)


def test_the_page_says_of_each_metric_of_apache_where_it_is() -> None:
    page = PAGE.read_text()
    table = set(re.findall(r"^\| `(rocketmq_\w+)` \|", page, re.MULTILINE))
    missing = {f"rocketmq_{name}" for name in APACHE} - table
    assert len(missing) == 6
    _, _, reasons = page.partition("that are not here")
    for name in missing:
        assert name in reasons or "rocketmq_pop_" in name, name


def test_what_is_counted_for_metrics_only(tmp_path: Path) -> None:
    async def scenario() -> Samples:
        async with running(broker_config(tmp_path, **PROM)) as asker:
            await use(asker)
            assert (await asker.pull("T", queueOffset=1, maxMsgNums=1)).code == 0
            later = f"TIMER_DELAY_SEC\x01300\x02UNIQ_KEY\x01{UNIQUE}\x02"
            assert (await asker.send("T", bytes(5_000), text=later)).code == 0
            timers = asker.broker.features.scheduled.timers
            await until(lambda: timers.pending_count == 1)
            half = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01{UNIQUE}\x02"
            sent = await asker.send("T", text=half, a="PG", f=4)
            assert sent.code == 0, sent.remark
            await asker.ask(
                37, producerGroup="PG", tranStateTableOffset=0, commitOrRollback=8,
                commitLogOffset=int(sent.ext["msgId"][16:], 16), fromTransactionCheck="false",
                msgId=UNIQUE, transactionId=UNIQUE,
            )  # fmt: skip
            return parsed(await fetch(address_of(asker.broker)))

    found = asyncio.run(scenario())
    group = (("consumer_group", "CG"), ("topic", "T"))
    # Of three messages and what the transaction left one is acknowledged, one more was given.
    assert found["rocketmq_consumer_inflight_messages"][group] == 1
    lag = found["rocketmq_consumer_lag_messages"][group]
    assert found["rocketmq_consumer_ready_messages"][group] == lag - 1
    assert 0 <= found["rocketmq_consumer_queueing_latency"][group] < 60_000
    assert found["rocketmq_message_size_count"][()] >= 4
    small = found["rocketmq_message_size_bucket"][(("le", "4096"),)]
    assert small < found["rocketmq_message_size_count"][()]
    assert found["rocketmq_delay_message_latency_bucket"][(("le", "600"),)] == 1
    assert found["rocketmq_delay_message_latency_bucket"][(("le", "60"),)] == 0
    assert found["rocketmq_timer_enqueue_total"][()] == 1
    assert found["rocketmq_timer_dequeue_total"][()] == 0
    assert found["rocketmq_finish_message_latency_count"][()] == 1
    assert 0 < found["rocketmq_storage_message_reserve_time"][()] < 60_000
    assert found["rocketmq_topic_number"][()] > 3


def test_nothing_is_served_or_measured_by_default(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            assert address_of(asker.broker) == ""
            server: Any = asker.broker._server
            assert server.request_received.__self__.handler is asker.broker.router

    asyncio.run(scenario())


def test_limits_keep_a_scrape_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "SERIES_MAX", 2)
    monkeypatch.setattr(metrics_module, "QUEUES_MAX", 1)

    async def scenario() -> Samples:
        async with running(broker_config(tmp_path, **PROM)) as asker:
            for topic in ("A", "B", "C"):
                await asker.make_topic(topic, 1)
                await asker.send(topic)
                await asker.ask(15, consumerGroup="TOOLS_CONSUMER", topic=topic, queueId=0,
                                commitOffset=0)  # fmt: skip
            return parsed(await fetch(address_of(asker.broker)))

    found = asyncio.run(scenario())
    assert len(found["rocketmq_messages_in_total"]) == 2
    assert len(found["rocketmq_consumer_lag_messages"]) == 1
    assert found["rmq_metrics_left_out_series"][()] >= 3


# The endpoint
