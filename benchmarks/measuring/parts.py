"""Runs the parts of a benchmark, and records the outcome of each for `report.py`."""

from __future__ import annotations

import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from benchmarks.measuring import results

PLANNED: Final = "planned"
ENDED: Final = "ended"
FAILED: Final = "failed"


def plan(names: Collection[str]) -> None:
    """Record which parts will run, so that the report notices one that never began."""
    for name in names:
        results.record("part", part=name, state=PLANNED, error="")


def run(parts: Mapping[str, Callable[[], object]]) -> int:
    """Run them in their order; one that fails does not end the others. Returns the exit code."""
    failed = 0
    for name, work in parts.items():
        started = time.perf_counter()
        token = results.part.set(name)
        try:
            work()
        except Exception as error:  # noqa: BLE001  the others still count
            failed += 1
            traceback.print_exc()
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            results.info(f"{name} failed: {text}")
            results.record("part", state=FAILED, error=text)
        else:
            results.info(f"{name} took {time.perf_counter() - started:.0f} s")
            results.record("part", state=ENDED, error="")
        finally:
            results.part.reset(token)
    return 1 if failed else 0


def run_in_directories(
    parts: Mapping[str, Callable[[Path, bool], None]],
    only: Collection[str] | None,
    directory: Path | None,
    is_quick: bool,
) -> int:
    """Run those of `only`, or all, each in a directory that is removed after it."""

    def in_its_own(name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="rmq-bench-", dir=directory) as root:
            parts[name](Path(root), is_quick)

    chosen = [name for name in parts if not only or name in only]
    plan(chosen)
    return run({name: lambda name=name: in_its_own(name) for name in chosen})  # type: ignore[misc]
