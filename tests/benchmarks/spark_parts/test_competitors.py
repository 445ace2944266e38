"""Who is compared with whom, and that each row names the settings that make it comparable."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark")

from benchmarks.measuring.rounds import figure
from benchmarks.spark_parts import competitors, sink, source

TOPICS = {name: name for name in ("synced", "unsynced", "kafka", "kafka synced")}
WRITINGS = {one.name: one for one in sink.writings({"a": "s"}, {"a": "u"}, {"k": "1"}, TOPICS)}


@pytest.mark.parametrize("name", [name for name in WRITINGS if name != "null"])
def test_every_sink_says_how_safe_it_is(name: str) -> None:
    settings = WRITINGS[name].settings
    if "kafka" in name:
        assert "acks=all" in settings
        assert ("flush.messages=1" in settings) == ("synced" in name)
        assert ("logs not synced" in settings) == ("synced" not in name)
        assert ("kafka.linger.ms=20" in settings) == ("tuned" in name)
    else:
        flush = "ASYNC_FLUSH" if "unsynced" in name else "SYNC_FLUSH"
        waits = "false" if "unsynced" in name else "true"
        assert f"flushDiskType={flush}, sinkWaitForDisk={waits}" in settings
        assert ("shortCircuit=off" in settings) == ("network" in name)


def test_options_are_those_that_the_settings_name() -> None:
    assert WRITINGS["exactly once, synced, network"].options == {
        "a": "s", "topic": "synced", "deliveryGuarantee": "exactly_once", "shortCircuit": "off",
    }  # fmt: skip
    assert WRITINGS["exactly once, unsynced, files"].options == {
        "a": "u", "topic": "unsynced", "deliveryGuarantee": "exactly_once",
    }  # fmt: skip
    assert WRITINGS["kafka synced, tuned"].options == {
        "k": "1", "topic": "kafka synced", **competitors.KAFKA_WRITES_TUNED,
    }  # fmt: skip


def test_every_goal_compares_what_is_there() -> None:
    for ours, peers, _, _ in sink.GOALS.values():
        assert {ours, *peers} <= WRITINGS.keys()


def test_goals_are_against_the_better_peer(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {name: figure([1.0, 1.0, 1.0]) for name in WRITINGS}
    figures["exactly once, unsynced, files"] = figure([6.0, 8.0, 9.0])
    figures["kafka tuned"] = figure([4.0, 2.0, 3.0])
    sink.write_lines(1024, figures)
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines()}
    assert len(lines) == len(sink.GOALS)
    assert lines["unsynced_1KiB_exactly_once_over_kafka"] == (
        "ratio unsynced_1KiB_exactly_once_over_kafka 2.67 goal >=2"
        " (1.5 to 4 in 3 rounds, over kafka tuned)"
    )


@pytest.mark.parametrize("columns", source.COLUMN_SETS)
def test_readers_of_one_set_of_columns(columns: str) -> None:
    server, kafka = SimpleNamespace(options={"a": "1"}), SimpleNamespace(options={"k": "2"})
    found = {
        one.name.removeprefix(f"{columns} "): one
        for one in source.column_readings(columns, {}, (server, "t"), (kafka, "u"))
    }
    expected = {"null", "ours, files", "ours, network"}
    if columns != "default":
        expected |= {"kafka default", "kafka tuned"}
        assert "kafka.max.poll.records=50000" in found["kafka tuned"].settings
        assert found["kafka default"].settings == "defaults"
    assert found.keys() == expected
    assert found["ours, network"].options["shortCircuit"] == "off"
    assert found["ours, network"].settings == "shortCircuit=off"
    assert found["null"].options == {"columns": columns}


def test_the_seven_columns_are_as_wide_as_kafkas() -> None:
    from benchmarks.spark_parts.ceiling import SEVEN

    def kinds(text: str) -> list[str]:
        return [field.split(" ")[1] for field in text.split(", ")]

    assert kinds(source.SEVEN) == kinds(SEVEN)


def test_sizes_have_names() -> None:
    assert [competitors.size_name(n) for n in (100, 1024, 10240)] == ["100B", "1KiB", "10KiB"]


def test_goals_of_the_source_depend_on_size_and_transfer() -> None:
    defaults, tuned = source.TRANSFER_DEFAULTS, "spark_conf()"
    goals = source.throughput_goals
    assert goals("value", 100, defaults) == (">=0.9", ">=2", ">=1.3")
    assert goals("value", 1024, defaults) == (">=0.9", ">=1.4", ">=1.3")
    assert goals("value", 1024, tuned) == (">=0.9", ">=1.9", ">=1.3")
    assert goals("seven", 100, defaults) == goals("seven", 100, tuned) == (">=0.85", ">=1.2", ">=1")
    assert goals("default", 100, tuned) == (">=0.75", "none", "none")
    assert goals("value", 10_240, tuned) == (">=0.9", "none", "none")
