"""A pytest plugin: imports the instrumented copies of the native modules instead of those built.

`RMQ_SANITIZED` names the directory with `_native.so`, `_columns.so` and `_system_lane.so`. A run in
which one of them was not imported from there has proved nothing and fails.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

DIRECTORY = Path(os.environ["RMQ_SANITIZED"])
MODULES = {
    "broker_core.codec.native._native": DIRECTORY / "_native.so",
    "broker_core.runtime._system_lane": DIRECTORY / "_system_lane.so",
    "pyspark_rmq.payloads.native._columns": DIRECTORY / "_columns.so",
}


# Most of the time of the fuzzers goes into the twins, which are not watched here.
settings.register_profile(
    "sanitized", parent=settings.get_profile("default"), deadline=None, max_examples=15
)


class Finder:
    """Asked before all others."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        found = MODULES.get(name)
        return None if found is None else importlib.util.spec_from_file_location(name, found)


sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]


def pytest_sessionfinish(session: pytest.Session) -> None:
    for name, path in MODULES.items():
        module = sys.modules.get(name)
        if module is None or module.__file__ != str(path):
            pytest.exit(f"{name} was not the instrumented copy: {module}", returncode=3)
