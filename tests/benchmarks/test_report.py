"""`make bench-report` from canned records: what the page says, and its pictures."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report, report_charts, report_page
from benchmarks.report_page import Machine, Run

MACHINE = Machine("2030-01-02", "abc1234", True, (("processor", "A | B"),), 4)


def ratio(name: str, value: float, goal: str, rounds: int = 3) -> dict[str, Any]:
    return {
        "type": "ratio", "name": name, "goal": goal, "peer": "kafka tuned", "value": value,
        "low": value / 2, "high": value * 2, "rounds": rounds,
    }  # fmt: skip


def row(table: str, name: str, *values: float, unit: str = "rows/s", x: Any = None) -> Any:
    return {
        "type": "row", "table": table, "name": name, "settings": "SYNC_FLUSH", "unit": unit,
        "values": values, "x": x,
    }  # fmt: skip


def samples(count: int, **percentiles: float) -> dict[str, Any]:
    return {
        "type": "samples", "table": "latency", "name": "ours", "settings": "defaults",
        "unit": "ms", "count": count, "percentiles": percentiles,
        "quantiles": [1.0 + number for number in range(101)],
    }  # fmt: skip


RECORDS = (
    {"type": "info", "text": "not on the page"},
    row("write", "ours", 10.0, 30.0, 20.0, x=100),
    row("write", "ours", 5.0, 6.0, 7.0, x=1024),
    row("write", "kafka", 4.0, 4.0, 4.0, x=100),
    row("write, without touch_memory", "ours", 1234.0),
    row("cpu", "ours", 1.0, 2.0, 3.0, unit="CPU s per million"),
    row("cpu", "Apache", 2.0, 2.0, 3.0, unit="CPU s per million"),
    samples(1_200, p50=2.0, p90=3.0, p99=123.4),
    samples(150, p50=2.0, p90=3.0),
    ratio("met", 2.5, ">=2"),
    ratio("missed", 1.5, ">=2"),
    ratio("small_is_good", 0.5, "<=1", rounds=1),
    ratio("for_information", 7.0, "none"),
)
RUN = Run("Spark sink", "python benchmarks/spark_sink.py", 0, 120.0, 0.1, RECORDS)


def lines(*runs: Run, quick: bool = False, machine: Machine = MACHINE) -> list[str]:
    return report_page.page(machine, runs, {}, quick).splitlines()


def test_the_page_says_how_it_was_made() -> None:
    text = "\n".join(lines(RUN))
    assert "`make bench-report` on 2030-01-02, from commit abc1234; full runs." in text
    assert "| processor | A \\| B |" in text
    assert "| `python benchmarks/spark_sink.py` | 2 min | 0.1 |" in text
    assert "not quiet" not in text
    assert "Not complete" not in text
    assert "not on the page" not in text


def test_the_page_owns_up() -> None:
    changed = MACHINE._replace(is_clean=False)
    busy = RUN._replace(busy_before=1.2, exit_code=3)
    text = "\n".join(lines(busy, quick=True, machine=changed))
    assert "with changes that were not committed; quick runs: few rows, three rounds." in text
    assert "**The machine was not quiet**" in text
    assert "Spark sink 1.2 of 4. Their figures do not count." in text
    assert "**Not complete**: Spark sink (exit code 3)." in text


def test_goals_have_ranges_and_misses_are_bold() -> None:
    found = [line for line in lines(RUN) if line.startswith("| Spark sink: ")]
    assert found == [
        "| Spark sink: `met` | 2.5 | 1.25 to 5 | kafka tuned | ≥ 2 |",
        "| Spark sink: `missed` | **1.5** | 0.75 to 3 | kafka tuned | ≥ 2 |",
        "| Spark sink: `small_is_good` | 0.5 |  | kafka tuned | ≤ 1 |",
    ]


def test_rows_have_settings_median_and_range() -> None:
    found = lines(RUN)
    assert "| ours | 100 | SYNC_FLUSH | 20 rows/s | 10 to 30 |" in found
    assert "| ours | 1,024 | SYNC_FLUSH | 6 rows/s | 5 to 7 |" in found
    assert "| ours | SYNC_FLUSH | 1,234 rows/s | one run |" in found


def test_few_samples_have_no_p99() -> None:
    found = lines(RUN)
    assert "| ours | defaults | 2 ms | 3 ms | 123 ms | 1200 |" in found
    assert "| ours | defaults | 2 ms | 3 ms | too few samples | 150 |" in found


def test_pictures_are_where_the_page_says_and_the_same_each_time(tmp_path: Path) -> None:
    charts = report_charts.draw_all([RUN], tmp_path / "one")
    assert sorted(charts.values()) == [
        "spark-sink-cpu.svg",
        "spark-sink-latency.svg",
        "spark-sink-write.svg",
    ]
    assert report_charts.draw_all([RUN], tmp_path / "two") == charts
    for name in charts.values():
        first, second = ((tmp_path / one / name).read_bytes() for one in ("one", "two"))
        assert first == second
        assert ET.fromstring(first).tag.endswith("svg")
    text = report_page.page(MACHINE, [RUN], charts, False)
    assert "![write](spark-sink-write.svg)" in text
    assert text.count("![") == 3


def test_pictures_of_an_earlier_report_go(tmp_path: Path) -> None:
    (tmp_path / "old.svg").write_text("old")
    report_charts.draw_all([RUN], tmp_path)
    assert not (tmp_path / "old.svg").exists()


def store_run(results: Path, title: str, run: Run) -> None:
    records = results / f"{report_charts.file_name(title)}.jsonl"
    records.write_text("".join(json.dumps(one) + "\n" for one in run.records))
    about = {
        name: getattr(run, name) for name in ("command", "exit_code", "seconds", "busy_before")
    }
    records.with_suffix(".json").write_text(json.dumps(about))


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_page_is_written_again_from_what_was_measured(tmp_path: Path, exit_code: int) -> None:
    store_run(tmp_path, "Spark sink", RUN._replace(exit_code=exit_code))
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE._asdict()))
    (tmp_path / "quick.json").write_text("true")
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    given = ["--again", "--results", str(tmp_path), "--output", str(page)]
    assert report.main(given) == exit_code
    text = page.read_text(encoding="utf-8")
    assert "quick runs" in text
    assert "![write](benchmarks/spark-sink-write.svg)" in text
    assert (page.parent / "benchmarks" / "spark-sink-write.svg").exists()


def test_without_results_there_is_no_page(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    assert report.main(["--again", "--results", str(tmp_path), "--output", str(page)]) == 1
    assert not page.exists()


def test_a_benchmark_is_run_and_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(report.COMMANDS, "Store", ("store.py", "--help"))
    monkeypatch.setattr(report, "busy_cores", lambda: 0.7)
    report.measure("Store", tmp_path, is_quick=True)
    found = report.stored("Store", tmp_path)
    assert found is not None
    assert (found.title, found.exit_code, found.records) == ("Store", 0, ())
    assert found.busy_before == 0.7
    assert found.command == "python benchmarks/store.py --quick --help"
    assert report.stored("Broker", tmp_path) is None


def test_busy_cores_are_a_share_of_all() -> None:
    assert 0 <= report.busy_cores(0.01) <= (os.cpu_count() or 1)


def test_the_machine_is_described() -> None:
    found = json.loads(json.dumps(report.machine()))
    facts = dict(found.pop("facts"))
    assert {"processor", "memory", "Java", "Kafka", "Apache RocketMQ", "Spark"} <= facts.keys()
    assert set(found) == {"made", "commit", "is_clean", "cores"}
