"""Options and columns of a writer: what is accepted, and what every refusal says."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core import errors
from pyspark_rmq.sink.sink_options import SINK_OPTIONS, SinkOptions
from pyspark_rmq.sink.task.sink_columns import SinkColumns, allowed_guarantee, find_columns

SERVERS = {"rmq.namesrv.addr": "127.0.0.1:9876"}


def parse(**given: Any) -> SinkOptions:
    texts = {name.replace("__", "."): str(value) for name, value in given.items()}
    return SinkOptions.parse({**SERVERS, **texts})


def found(*fields: str, **given: Any) -> SinkColumns:
    pairs = [(name, kind or "string") for name, _, kind in (f.partition(" ") for f in fields)]
    return find_columns(pairs, parse(**{"topic": "T", **given}))


def test_defaults() -> None:
    options = parse()
    assert options.guarantee == "auto"
    assert (options.topic, options.queue_selector, options.creates_topics) == ("", "", False)
    assert (options.body_size_max, options.drops_oversize) == (4 << 20, False)
    assert options.attempts == 11
    assert options.short_circuit == "auto"


def test_names_in_any_case_and_aliases() -> None:
    options = SinkOptions.parse(
        {"nameserver": "a:1", "PATH": "T", "deliveryguarantee": "EXACTLY_ONCE", "sinkid": "s",
         "checkpointlocation": "/c", "queryname": "q", "createTopic": "ifMissing"}
    )  # fmt: skip
    assert (options.topic, options.guarantee, options.sink_id) == ("T", "exactly_once", "s")
    assert (options.checkpoint, options.creates_topics) == ("/c", True)


def test_a_checkpoint_has_one_name() -> None:
    same = ["/c/d", "/c/d/", "file:/c/d", "file:///c/d/"]
    assert {parse(checkpointLocation=text).lineage for text in same} == {"/c/d"}
    assert parse(checkpointLocation="s3a://b/c").lineage == "s3a://b/c"
    assert parse().lineage == ""
    long = parse(checkpointLocation="/c" * 1_000).lineage
    assert long.startswith("sha256:")
    assert len(long) < 100
    assert long != parse(checkpointLocation="/d" * 1_000).lineage


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deliveryGuarantee": "twice"}, "auto or exactly_once or at_least_once"),
        ({"delivery": "auto"}, "did you mean deliveryGuarantee"),
        ({"oversizePolicy": "cut"}, "fail or drop or skip or dlq"),
        ({"compression": "best"}, "none or zlib"),
        ({"shortCircuit": "maybe"}, "auto or on or off"),
        ({"waitStoreOk": "false", "deliveryGuarantee": "exactly_once"}, "waitStoreOk=false is for"),
        ({"oversizePolicy": "dlq"}, "oversizeTopic go together"),
        ({"oversizeTopic": "large"}, "oversizeTopic go together"),
        ({"queueSelector": "random"}, "roundrobin or hash or column"),
        ({"rmq__secret__key": "abc"}, "go together"),
        ({"rmq__tls__ca": "ca.pem"}, "needs tls_enable=true"),
        ({"startingOffsets": "earliest"}, "docs/sink.md"),
        ({"batchId": "1", "deliveryGuarantee": "at_least_once"}, "batchId needs"),
    ],
)
def test_refused_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(errors.RmqError, match=message) as caught:
        parse(**given)
    assert "abc" not in str(caught.value)


def test_name_servers_are_needed() -> None:
    with pytest.raises(errors.InvalidArgument, match=r"rmq\.namesrv\.addr is missing"):
        SinkOptions.parse({"topic": "T"})


def test_batch_numbers_are_for_batches() -> None:
    with pytest.raises(errors.InvalidArgument, match="numbers its batches itself"):
        parse(sinkId="s", batchId=3).for_stream()
    with pytest.raises(errors.InvalidArgument, match="needs a sinkId"):
        parse(batchId=3).for_batch()
    assert parse(sinkId="s", batchId=3).for_batch().batch_id == 3


def test_every_option_is_on_the_page() -> None:
    from pathlib import Path

    page = Path(__file__).resolve().parents[3] / "docs" / "sink.md"
    text = page.read_text(encoding="utf-8")
    hidden = {"checkpointLocation", "queryName"}
    assert [name for name in SINK_OPTIONS if f"`{name}`" not in text and name not in hidden] == []


def test_columns_by_name_in_any_order_and_case() -> None:
    columns = found("KEY", "value binary", "shardingkey", "properties map<string,string>")
    assert (columns.key, columns.value, columns.sharding_key, columns.properties) == (0, 1, 2, 3)
    assert columns.selector == "hash"


def test_the_topic_option_beats_the_column() -> None:
    assert found("value", "topic").topic is None
    assert find_columns([("value", "string"), ("topic", "string")], parse()).topic == 1


@pytest.mark.parametrize(
    ("fields", "given", "message"),
    [
        (("value", "offset bigint", "msgId"), {}, "cannot be written: offset, msgId"),
        (("key",), {}, "no column value"),
        (("value int",), {}, "value is int, and must be binary or string"),
        (("value", "partition bigint"), {}, "partition is bigint, and must be int"),
        (("value", "VALUE"), {}, "duplicate column value"),
        (("value",), {"queueSelector": "hash"}, "needs a column shardingKey or key"),
        (("value",), {"queueSelector": "column"}, "needs a column partition or broker"),
        (("value", "partition int"), {"queueSelector": "roundRobin"}, "would ignore a column"),
        (("value", "shardingKey"), {"queueSelector": "roundRobin"}, "would ignore a column"),
        (("a",), {"format": "json", "queueSelector": "hash"}, "only queueSelector=roundRobin"),
    ],
)
def test_refused_columns(fields: tuple[str, ...], given: dict[str, str], message: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=message):
        found(*fields, **given)


def test_a_topic_is_needed() -> None:
    with pytest.raises(errors.InvalidArgument, match="option topic or a column topic"):
        find_columns([("value", "string")], parse())
    with pytest.raises(errors.InvalidArgument, match="needs the option topic"):
        find_columns([("a", "int")], parse(format="json"))


def test_selectors() -> None:
    assert found("value").selector == "roundrobin"
    assert found("value", "key", queueSelector="hash").selector == "hash"
    assert found("value", "key").selector == "roundrobin"
    assert found("value", "partition int", "shardingKey").selector == "column"
    assert found("anything array<int>", format="json").value is None


def test_delayed_rows_are_never_promised_exactly_once() -> None:
    columns = found("value", "delayLevel int")
    assert allowed_guarantee(columns, "auto") == "at_least_once"
    assert allowed_guarantee(columns, "at_least_once") == "at_least_once"
    with pytest.raises(errors.InvalidArgument, match="delayLevel and deliverAt cannot be written"):
        allowed_guarantee(columns, "exactly_once")
    assert allowed_guarantee(found("value"), "auto") == "auto"
