"""Every module of the benchmarks can be imported: no type checker looks at them."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.joinpath("benchmarks").rglob("[a-z]*.py")
)


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported(name: str) -> None:
    assert importlib.import_module(name).__doc__
