"""`docs/security.md`: every rule has its row, and every row names tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "security.md"
ROW = re.compile(r"^\| (S\d\d(?:, S\d\d)*) \| (.+?) \| (.+) \|$", re.MULTILINE)


def rows() -> dict[str, list[str]]:
    """Rule -> the tests of its row, as `path` or `path::name`."""
    found: dict[str, list[str]] = {}
    for ids, _, tests in ROW.findall(PAGE.read_text(encoding="utf-8")):
        for rule in ids.split(", "):
            assert rule not in found, rule
            found[rule] = re.findall(r"`([^`]+)`", tests)
    return found


def test_every_rule_has_a_row() -> None:
    assert sorted(rows()) == [f"S{number:02}" for number in range(1, 26)]


@pytest.mark.parametrize("rule", sorted(rows()))
def test_the_tests_of_every_rule_exist(rule: str) -> None:
    named = rows()[rule]
    assert named
    for text in named:
        path, _, name = text.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        functions |= {
            node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)
        }
        if name:
            assert name in functions, text
        else:
            assert any(function.startswith("test_") for function in functions), text
