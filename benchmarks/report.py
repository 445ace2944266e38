"""Runs all benchmarks and writes `docs/benchmarks.md` with its pictures.

    python benchmarks/report.py [--quick] [--only NAME ...] [--results DIR] [--output FILE]

Takes hours; with --quick, about one. Needs an idle machine: the page shows how many cores were busy
before each run, and marks runs beside other work. The records of each run stay in `--results`, and
`--again` writes the page from them without measuring.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import report_charts, report_page
from benchmarks.report_page import Machine, Run
from benchmarks.results import RESULTS
from broker_core import codec_backend

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
# Title and arguments; the Spark benchmarks once with Spark's settings and once with ours.
COMMANDS = {
    "Spark source": ("spark_source.py",),
    "Spark source, spark_conf()": ("spark_source.py", "--spark-conf", "--only", "stream", "batch"),
    "Spark sink": ("spark_sink.py",),
    "Spark sink, spark_conf()": ("spark_sink.py", "--spark-conf", "--only", "write"),
    "Typed payloads": ("payloads.py",),
    "Broker": ("broker.py",),
    "Replication": ("replication.py",),
    "Store": ("store.py",),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or take what was measured, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes and three rounds")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "benchmarks")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--again", action="store_true", help="only write the page from --results")
    given = parser.parse_args(arguments)
    given.results.mkdir(parents=True, exist_ok=True)
    if not given.again:
        for title in given.only:
            measure(title, given.results, given.quick)
        (given.results / "machine.json").write_text(json.dumps(machine()), encoding="utf-8")
        (given.results / "quick.json").write_text(json.dumps(given.quick), encoding="utf-8")
    runs = [run for title in given.only if (run := stored(title, given.results)) is not None]
    if not runs:
        print(f"nothing was measured: {given.results} is empty")
        return 1
    write(given.output, given.results, runs)
    print(f"{given.output}: {len(runs)} benchmarks")
    return 1 if any(run.exit_code for run in runs) else 0


def measure(title: str, results: Path, is_quick: bool) -> None:
    """Run one benchmark; its lines are shown, its records and how it went are stored."""
    name, *more = COMMANDS[title]
    records = results / f"{report_charts.file_name(title)}.jsonl"
    records.unlink(missing_ok=True)
    command = [f"benchmarks/{name}", *(["--quick"] if is_quick else []), *more]
    busy_before = busy_cores()
    started = time.monotonic()
    print(f"== {' '.join(command)}", flush=True)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, RESULTS: str(records)},
        check=False,
    )
    about = {
        "command": f"python {' '.join(command)}",
        "exit_code": done.returncode,
        "seconds": time.monotonic() - started,
        "busy_before": busy_before,
    }
    records.with_suffix(".json").write_text(json.dumps(about), encoding="utf-8")


def stored(title: str, results: Path) -> Run | None:
    """What `measure` left, or None."""
    records = results / f"{report_charts.file_name(title)}.jsonl"
    about = records.with_suffix(".json")
    if not about.exists():
        return None
    lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    found = tuple(json.loads(line) for line in lines)
    return Run(title=title, records=found, **json.loads(about.read_text(encoding="utf-8")))


def write(output: Path, results: Path, runs: Sequence[Run]) -> None:
    """The page and its pictures, which go to a directory of the page's name."""
    directory = output.with_suffix("")
    charts = {
        key: f"{directory.name}/{name}"
        for key, name in report_charts.draw_all(runs, directory).items()
    }
    about = json.loads((results / "machine.json").read_text(encoding="utf-8"))
    facts = tuple((name, value) for name, value in about.pop("facts"))
    is_quick = json.loads((results / "quick.json").read_text(encoding="utf-8"))
    text = report_page.page(Machine(facts=facts, **about), runs, charts, is_quick)
    output.write_text(text, encoding="utf-8")


def machine() -> dict[str, object]:
    """This machine and the versions of everything that was measured."""
    from benchmarks import kafka_peer
    from benchmarks.broker_servers import APACHE

    changes = _git("status", "--porcelain", "--untracked-files=no")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = [
        ("processor", f"{_processor()}, {os.cpu_count()} cores"),
        ("memory", f"{memory / (1 << 30):.0f} GiB"),
        ("system", f"{platform.system()} {platform.release()}"),
        ("Python", f"{platform.python_version()}, codec {codec_backend()}"),
        ("Java", _java()),
        ("Spark", kafka_peer.SPARK),
        ("Kafka", f"{kafka_peer.VERSION}, Spark's connector 4.2.0"),
        ("Apache RocketMQ", APACHE),
        *(
            (f"{name} outside of Spark", importlib.metadata.version(name))
            for name in ("pyarrow", "numpy")
        ),
    ]
    return {
        "made": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD") or "unknown",
        "is_clean": not changes,
        "cores": os.cpu_count() or 1,
        "facts": facts,
    }


def busy_cores(seconds: float = 5.0) -> float:
    """How many cores worked in the next seconds, while this process does nothing."""
    before = _cpu_ticks()
    time.sleep(seconds)
    busy, total = (after - first for after, first in zip(_cpu_ticks(), before, strict=True))
    return busy / max(total, 1) * (os.cpu_count() or 1)


def _cpu_ticks() -> tuple[int, int]:
    """Ticks of all cores since the start of the machine: at work, and all."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0, 0
    ticks = [int(text) for text in path.read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]]
    # The fourth and fifth are idle and waiting for a disk.
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _java() -> str:
    from tests.interop.java_client import java_tool

    done = subprocess.run(
        [java_tool("java"), "-version"], capture_output=True, text=True, check=False
    )
    return done.stderr.splitlines()[0] if done.stderr else "none"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
