"""`make bench-report` from canned records: what the page says, and its pictures."""

from __future__ import annotations

import json
import os
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report
from benchmarks.measuring import parts
from benchmarks.report_parts import drawing, page_text
from benchmarks.report_parts.page_text import Call, Machine, Run
from tests.interop.server_processes import wait_until

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


def part(name: str, state: str, error: str = "") -> dict[str, Any]:
    return {"type": "part", "part": name, "state": state, "error": error}


RECORDS = (
    part("write", parts.PLANNED),
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
    part("write", parts.ENDED),
)
CALL = Call("python benchmarks/spark_sink.py", 0, 120.0, 0.1, "2030-01-02", "abc1234")
RUN = Run("Spark sink", (CALL,), RECORDS)


def lines(*runs: Run, machine: Machine = MACHINE) -> list[str]:
    return page_text.page(machine, runs, {}).splitlines()


def test_the_page_says_how_it_was_made() -> None:
    text = "\n".join(lines(RUN))
    assert "`benchmarks/report.py` on 2030-01-02, from commit abc1234; full runs." in text
    assert "| processor | A \\| B |" in text
    assert "| `python benchmarks/spark_sink.py` | 2030-01-02, abc1234 | 2 min | 0.1 |" in text
    assert "not quiet" not in text
    assert "Not complete" not in text
    assert "not on the page" not in text


def test_the_page_names_what_makes_its_figures_doubtful() -> None:
    changed = MACHINE._replace(is_clean=False)
    call = CALL._replace(command="python a.py --quick", busy_before=1.2, exit_code=1)
    failed = part("disk", parts.FAILED, "OSError: no room")
    busy = RUN._replace(calls=(call,), records=(*RECORDS, failed, part("publish", parts.PLANNED)))
    text = "\n".join(lines(busy, machine=changed))
    assert "with changes that were not committed; quick runs: few rows, three rounds." in text
    assert "**The machine was not quiet**" in text
    assert "`python a.py --quick` 1.2 of 4. Their figures do not count." in text
    expected = "Spark sink: disk (OSError: no room), publish (not finished)."
    assert f"**Not complete**: {expected}" in text
    assert "| ours | 100 | SYNC_FLUSH | 20 rows/s | 10 to 30 |" in text


def test_the_page_says_when_only_some_runs_were_quick() -> None:
    full = Call("python benchmarks/store.py", 0, 60.0, 0.0, "2030-01-02", "abc1234")
    quick = full._replace(command="python benchmarks/broker.py --quick")
    runs = [Run("Store", (full,), ()), Run("Broker", (quick,), ())]
    text = page_text.page(MACHINE, runs, {})
    assert "; full runs, and with `--quick` few rows and three rounds." in text


def test_a_benchmark_without_any_part_is_named() -> None:
    call = CALL._replace(exit_code=2)
    expected = ["`python benchmarks/spark_sink.py` (exit code 2)"]
    assert page_text.problems(Run("Store", (call,), ())) == expected
    assert page_text.problems(Run("Store", (CALL, call), RECORDS)) == expected
    assert page_text.problems(RUN) == []


def test_parts_that_ran_again_replace_their_records() -> None:
    def of(name: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
        return [{**one, "part": name} for one in records]

    old = [part("a", parts.PLANNED), part("b", parts.PLANNED), *of("a", row("t", "ours", 1.0))]
    old += [part("a", parts.FAILED, "OSError"), *of("b", row("t", "ours", 2.0))]
    old += [part("b", parts.ENDED)]
    new = [part("a", parts.PLANNED), *of("a", row("t", "ours", 3.0)), part("a", parts.ENDED)]
    found = page_text.merged(old, new)
    assert [one["values"] for one in found if one["type"] == "row"] == [(3.0,), (2.0,)]
    assert page_text.problems(Run("Store", (CALL,), tuple(found))) == []


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
    assert found.count("| | Bytes of a value | Settings | Median | Range |") == 1
    topics = {**row("growth", "ours", 1.0, x=5), "x_name": "topics"}
    named = lines(RUN._replace(records=(topics,)))
    assert "| | Topics | Settings | Median | Range |" in named
    assert "| ours | SYNC_FLUSH | 1,234 rows/s | one run |" in found


def test_few_samples_have_no_p99() -> None:
    found = lines(RUN)
    assert "| ours | defaults | 2 ms | 3 ms | 123 ms | 1200 |" in found
    assert "| ours | defaults | 2 ms | 3 ms | too few samples | 150 |" in found


def test_pictures_are_where_the_page_says_and_the_same_each_time(tmp_path: Path) -> None:
    charts = drawing.draw_all([RUN], tmp_path / "one")
    assert sorted(charts.values()) == [
        "spark-sink-cpu.svg",
        "spark-sink-latency.svg",
        "spark-sink-write.svg",
    ]
    assert drawing.draw_all([RUN], tmp_path / "two") == charts
    for name in charts.values():
        first, second = ((tmp_path / one / name).read_bytes() for one in ("one", "two"))
        assert first == second
        assert ET.fromstring(first).tag.endswith("svg")
    text = page_text.page(MACHINE, [RUN], charts)
    assert "![write](spark-sink-write.svg)" in text
    assert text.count("![") == 3


def test_pictures_of_an_earlier_report_go(tmp_path: Path) -> None:
    (tmp_path / "old.svg").write_text("old")
    drawing.draw_all([RUN], tmp_path)
    assert not (tmp_path / "old.svg").exists()


def store_run(results: Path, title: str, run: Run) -> None:
    records = results / f"{drawing.file_name(title)}.jsonl"
    records.write_text("".join(json.dumps(one) + "\n" for one in run.records))
    about = [call._asdict() for call in run.calls]
    records.with_suffix(".json").write_text(json.dumps(about))


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_page_is_written_again_from_what_was_measured(tmp_path: Path, exit_code: int) -> None:
    more = (part("disk", parts.FAILED, "OSError"),) * exit_code
    quick = CALL._replace(command="python benchmarks/spark_sink.py --quick", exit_code=exit_code)
    store_run(tmp_path, "Spark sink", RUN._replace(calls=(quick,), records=(*RECORDS, *more)))
    (tmp_path / "machine.json").write_text(json.dumps(MACHINE._asdict()))
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
    monkeypatch.setitem(report.COMMANDS, "Store", "store.py --help")
    monkeypatch.setattr(report, "busy_cores", lambda: 0.7)
    report.measure("Store", tmp_path, True, (), MACHINE._asdict())
    found = report.stored("Store", tmp_path)
    assert found is not None
    assert (found.title, found.records) == ("Store", ())
    [call] = found.calls
    assert (call.command, call.exit_code) == ("python benchmarks/store.py --quick --help", 0)
    assert (call.busy_before, call.made, call.commit) == (0.7, "2030-01-02", "abc1234")
    assert report.stored("Broker", tmp_path) is None


@pytest.mark.parametrize(("given", "has_long"), [((), True), (("--quick",), False)])
def test_a_quick_report_leaves_out_long_reads(
    given: tuple[str, ...], has_long: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[str] = []
    monkeypatch.setattr(report, "measure", lambda title, *_: measured.append(title))
    monkeypatch.setattr(report, "machine", dict)
    report.main([*given, "--results", str(tmp_path), "--output", str(tmp_path / "page.md")])
    assert ("Spark source, long reads of 1 KiB" in measured) == has_long
    assert {"Spark source", "Store"} <= set(measured)


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from benchmarks.measuring import parts, results
from benchmarks.measuring.rounds import figure

def works(root, quick):
    assert root.is_dir()
    results.row("table", "ours", "", "s", figure([float(sys.argv[2])]))

def fails(root, quick):
    works(root, quick)
    raise OSError("no room\\nat all")

only = sys.argv[4:]
made = {"bad": fails if sys.argv[3] == "fail" else works, "good": works}
sys.exit(parts.run_in_directories(made, only, None, True))
"""


def test_a_part_that_fails_does_not_end_the_others_and_can_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    calls: list[list[str]] = []
    run_bounded = report.run_bounded

    def instead(command: list[str], environment: dict[str, str], limit_s: float) -> int:
        only = command[command.index("--only") + 1 :] if "--only" in command else []
        given = ["2", "work", *only] if calls else ["1", "fail"]
        calls.append(command)
        return run_bounded(
            [command[0], str(script), str(report.ROOT), *given], environment, limit_s
        )

    monkeypatch.setattr(report, "busy_cores", lambda: 0.0)
    monkeypatch.setattr(report, "run_bounded", instead)
    page = tmp_path / "benchmarks.md"
    given = ["--quick", "--only", "Store", "--results", str(tmp_path), "--output", str(page)]
    assert report.main(given) == 1
    text = page.read_text(encoding="utf-8")
    assert "**Not complete**: Store: bad (OSError: no room)." in text
    assert text.count("| ours |  | 1 s | one run |") == 2
    assert report.main([*given, "--parts", "bad"]) == 0
    text = page.read_text(encoding="utf-8")
    assert "Not complete" not in text
    assert text.index("| ours |  | 2 s | one run |") < text.index("| ours |  | 1 s | one run |")
    assert text.count("| `python benchmarks/store.py --quick") == 2
    assert calls[1][-2:] == ["--only", "bad"]


def test_a_benchmark_that_does_not_end_is_ended_with_its_processes(tmp_path: Path) -> None:
    note = tmp_path / "child"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"open({str(note)!r}, 'w').write(str(child.pid))\n"
        "child.wait()"
    )
    limit_s = 0.5
    while not note.exists():
        # A busy machine may need more time to begin.
        limit_s *= 2
        found = report.run_bounded([sys.executable, "-c", code], dict(os.environ), limit_s)
        assert found == report.TIMED_OUT
    status = Path(f"/proc/{note.read_text()}/status")

    def is_gone() -> bool:
        try:
            # Its new parent may not have collected it yet.
            return "zombie" in status.read_text()
        except OSError:
            return True

    wait_until(is_gone, 60, "the end of the child")


def test_busy_cores_are_a_share_of_all() -> None:
    assert 0 <= report.busy_cores(0.01) <= (os.cpu_count() or 1)


def test_the_machine_is_described() -> None:
    found = json.loads(json.dumps(report.machine()))
    facts = dict(found.pop("facts"))
    assert {"processor", "memory", "Java", "Kafka", "Apache RocketMQ", "Spark"} <= facts.keys()
    assert set(found) == {"made", "commit", "is_clean", "cores"}
