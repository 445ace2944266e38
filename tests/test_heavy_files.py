"""Files that take long begin a run of several processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests import conftest, heavy_files

ROOT = Path(__file__).resolve().parent.parent


def test_the_files_exist_and_are_in_order() -> None:
    assert [name for name in heavy_files.SECONDS if not (ROOT / name).exists()] == []
    assert list(heavy_files.SECONDS.values()) == sorted(heavy_files.SECONDS.values(), reverse=True)


def test_heavy_files_come_first_and_the_others_stay_in_order() -> None:
    longest, second, *_ = heavy_files.SECONDS
    names = ["tests/a.py::z", f"{second}::b", f"{second}::a", "tests/a.py::a", f"{longest}::x[1]"]
    items: Any = [
        SimpleNamespace(nodeid=name, get_closest_marker=lambda name: None) for name in names
    ]
    conftest.pytest_collection_modifyitems(items)
    found = [item.nodeid for item in items]
    assert found == [f"{longest}::x[1]", *names[1:3], names[0], names[3]]


def test_the_order_reaches_the_processes() -> None:
    """`make test` turns off the order that would put files with few tests last."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [parallel] = [line for line in makefile.splitlines() if line.startswith("PARALLEL :=")]
    assert "--dist loadfile --no-loadscope-reorder --durations=25" in parallel
