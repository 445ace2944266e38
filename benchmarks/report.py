"""Runs all benchmarks and writes `docs/benchmarks.md` with its pictures.

    python benchmarks/report.py [--quick] [--only NAME ...] [--parts PART ...] [--results DIR]
                                [--output FILE]

Takes hours; with --quick, about one. Needs an idle machine: the page shows how many cores were busy
before each run, and marks runs beside other work. The records of each run stay in `--results`. The
page is written after each benchmark; a part that fails is named there and does not end the others.
`--only "Broker" --parts latency` measures one part again, and the page keeps the other results.
`--again` writes the page without measuring.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring.results import RESULTS
from benchmarks.report_parts import drawing, page_text
from benchmarks.report_parts.page_text import Call, Machine, Run
from broker_core import codec_backend

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
MACHINE = "machine.json"
# Title and arguments; the Spark benchmarks once with Spark's settings, and where there are goals
# once more with ours.
COMMANDS = {
    "Spark source": "spark_source.py",
    "Spark source, long reads of 100 B": "spark_source.py --only stream --sizes 100 --scale 2.5",
    "Spark source, long reads of 1 KiB": "spark_source.py --only stream --sizes 1024 --scale 2.5",
    "Spark source, spark_conf()": "spark_source.py --spark-conf --only stream --sizes 100 1024",
    "Spark sink": "spark_sink.py",
    "Spark sink, spark_conf()": "spark_sink.py --spark-conf --only write --sizes 100 1024",
    "Typed payloads": "payloads.py",
    "Broker": "broker.py",
    "Replication": "replication.py",
    "Store": "store.py",
}
# Time limits of one benchmark, quick and complete.
LIMITS_S = (30 * 60.0, 6 * 3600.0)
END_S = 60.0
TIMED_OUT = 124


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or take what was measured, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="smaller sizes and three rounds")
    parser.add_argument(
        "--only", nargs="+", choices=COMMANDS, help="default: all; --quick leaves out long reads"
    )
    parser.add_argument("--parts", nargs="+", default=(), help="only these parts, of one benchmark")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "benchmarks")
    parser.add_argument("--output", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--again", action="store_true", help="only write the page from --results")
    given = parser.parse_args(arguments)
    given.only = given.only or [title for title in COMMANDS if not (given.quick and is_long(title))]
    if given.parts and len(given.only) != 1:
        parser.error("--parts needs --only with the one benchmark that they belong to")
    given.results.mkdir(parents=True, exist_ok=True)
    if not given.again:
        # Checked before the measurements, so that a missing package is reported at once.
        drawing.check()
        about = machine()
        (given.results / MACHINE).write_text(json.dumps(about), encoding="utf-8")
        for title in given.only:
            measure(title, given.results, given.quick, given.parts, about)
            _write_early(given.output, given.results)
    runs = stored_runs(given.results)
    if not runs:
        print(f"nothing was measured: {given.results} is empty")
        return 1
    write(given.output, given.results, runs)
    print(f"{given.output}: {len(runs)} of {len(COMMANDS)} benchmarks")
    missing = [f"{run.title}: {one}" for run in runs for one in page_text.problems(run)]
    for one in missing:
        print(f"not complete: {one}")
    return 1 if missing else 0


def is_long(title: str) -> bool:
    """Whether a benchmark has a size of its own that is never quick."""
    return "--scale" in COMMANDS[title]


def measure(
    title: str, results: Path, is_quick: bool, parts: Sequence[str], about: Mapping[str, Any]
) -> None:
    """Run one benchmark; its lines are shown, its records and how it went are stored."""
    name, *more = COMMANDS[title].split()
    command = [f"benchmarks/{name}", *(["--quick"] if is_quick else []), *more]
    if parts:
        # If a benchmark has two results, the last one counts.
        command = [*command, "--only", *parts]
    records = _records_file(title, results)
    fresh = records.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    earlier = stored(title, results) if parts else None
    busy_before = busy_cores()
    started = time.monotonic()
    print(f"== {shlex.join(command)}", flush=True)
    exit_code = -1
    try:
        environment = {**os.environ, RESULTS: str(fresh.absolute())}
        exit_code = run_bounded([sys.executable, *command], environment, LIMITS_S[not is_quick])
    finally:
        call = Call(
            command=f"python {shlex.join(command)}",
            exit_code=exit_code,
            seconds=time.monotonic() - started,
            busy_before=busy_before,
            made=about["made"],
            commit=about["commit"] + ("" if about["is_clean"] else " with changes"),
        )
        found: Sequence[Any] = _records_of(fresh)
        if earlier is not None:
            found = page_text.merged(earlier.records, found)
        records.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
        calls = [*(earlier.calls if earlier is not None else ()), call]
        text = json.dumps([one._asdict() for one in calls])
        records.with_suffix(".json").write_text(text, encoding="utf-8")
        fresh.unlink(missing_ok=True)


def run_bounded(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> int:
    """The exit code; whatever the command started ends with it, or when it takes too long."""
    # A process group of its own, so that servers of a benchmark that crashed can be ended.
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        print(f"not finished after {limit_s / 60:.0f} minutes", flush=True)
        return TIMED_OUT
    finally:
        with contextlib.suppress(ProcessLookupError):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(END_S)
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stored_runs(results: Path) -> list[Run]:
    """The runs that were measured now or earlier, in the order of the page."""
    return [run for title in COMMANDS if (run := stored(title, results)) is not None]


def stored(title: str, results: Path) -> Run | None:
    """The results that `measure` stored, or None."""
    records = _records_file(title, results)
    about = records.with_suffix(".json")
    if not about.exists():
        return None
    calls = tuple(Call(**one) for one in json.loads(about.read_text(encoding="utf-8")))
    return Run(title, calls, _records_of(records))


def _records_file(title: str, results: Path) -> Path:
    return results / f"{drawing.file_name(title)}.jsonl"


def _records_of(path: Path) -> tuple[dict[str, Any], ...]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return tuple(json.loads(line) for line in lines)


def _write_early(output: Path, results: Path) -> None:
    """Write the page so far. An error must not end the measurements; it occurs again at the end."""
    try:
        write(output, results, stored_runs(results))
    except Exception:  # noqa: BLE001
        traceback.print_exc()


def write(output: Path, results: Path, runs: Sequence[Run]) -> None:
    """The page and its pictures, which go to a directory of the page's name."""
    directory = output.with_suffix("")
    charts = {
        key: f"{directory.name}/{name}" for key, name in drawing.draw_all(runs, directory).items()
    }
    about = json.loads((results / MACHINE).read_text(encoding="utf-8"))
    facts = tuple((name, value) for name, value in about.pop("facts"))
    text = page_text.page(Machine(facts=facts, **about), runs, charts)
    output.write_text(text, encoding="utf-8")


def machine() -> dict[str, Any]:
    """This machine and the versions of everything that was measured."""
    from benchmarks.broker_parts.servers import APACHE
    from benchmarks.peers import kafka

    own = [f":!{path.relative_to(ROOT)}" for path in (PAGE, PAGE.with_suffix(""))]
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *own)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    facts = [
        ("processor", f"{_processor()}, {os.cpu_count()} cores"),
        ("memory", f"{memory / (1 << 30):.0f} GiB"),
        ("system", f"{platform.system()} {platform.release()}"),
        ("Python", f"{platform.python_version()}, codec {codec_backend()}"),
        ("Java", _java()),
        ("Spark", kafka.SPARK),
        ("Kafka", f"{kafka.VERSION}, Spark's connector 4.2.0"),
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
    # The benchmark that runs ends with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main())
