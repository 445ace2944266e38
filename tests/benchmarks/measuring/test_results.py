"""The lines that benchmarks print, and the records that the report is made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.measuring import results
from benchmarks.measuring.rounds import Ratio, figure


def test_a_ratio_shows_goal_range_and_peer() -> None:
    line = results.ratio_line("a_over_b", Ratio(1.2345, 0.98765, 2, 5), ">=1", "Kafka tuned")
    assert line == "ratio a_over_b 1.23 goal >=1 (0.988 to 2 in 5 rounds, over Kafka tuned)"
    assert results.ratio_line("idle_mb", 34.56, "<=80") == "ratio idle_mb 34.6 goal <=80"


def test_a_row_shows_settings_median_and_range() -> None:
    line = results.row_line("write", "ours", "SYNC_FLUSH", "rows/s", figure([1234.5, 9.25, 1e6]))
    assert line == "row write | ours | SYNC_FLUSH: 1,234 rows/s (9.25 to 1,000,000, 3 rounds)"
    line = results.row_line("write", "ours", "cold", "rows/s", figure([2.0]), 1024)
    assert line == "row write | ours at 1,024 | cold: 2 rows/s (one run)"


def test_records_have_what_the_lines_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "results"
    monkeypatch.setenv(results.RESULTS, str(target))
    monkeypatch.setattr("sys.argv", ["benchmarks/spark_sink.py", "--quick"])
    results.ratio("one", Ratio(2.0, 1.0, 3.0, 4), ">=1", "peer")
    results.row("table", "name", "settings", "rows/s", figure([1.0, 2.0]), x=100)
    results.samples("latency", "name", "settings", "ms", [float(n) for n in range(200)])
    results.info("text")
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert [one["type"] for one in found] == ["ratio", "row", "samples", "info"]
    assert {one["benchmark"] for one in found} == {"spark_sink"}
    assert found[0] == {
        "type": "ratio", "benchmark": "spark_sink", "part": "", "name": "one", "goal": ">=1",
        "peer": "peer", "value": 2.0, "low": 1.0, "high": 3.0, "rounds": 4,
    }  # fmt: skip
    assert (found[1]["values"], found[1]["x"]) == ([1.0, 2.0], 100)
    assert found[2]["percentiles"] == {"p50": 100.0, "p90": 180.0}
    assert (found[2]["quantiles"][0], found[2]["quantiles"][-1]) == (0.0, 199.0)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 4
    assert "p99" not in printed[2]


def test_without_a_file_only_lines_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(results.RESULTS, raising=False)
    results.info("text")
    assert capsys.readouterr().out == "info text\n"
