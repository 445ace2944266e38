"""Every module of the benchmarks can be imported: no type checker looks at them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

MODULES = sorted(
    path.stem for path in Path(__file__).parents[2].joinpath("benchmarks").glob("[a-z]*.py")
)


@pytest.mark.parametrize("name", MODULES)
def test_it_can_be_imported(name: str) -> None:
    assert importlib.import_module(f"benchmarks.{name}").__doc__
