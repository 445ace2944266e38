"""docs/errors.md has a section for each error that names one, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.import_rules import no_garbage_collection

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/errors.md").read_text(encoding="utf-8")


def named_anchors() -> Iterator[str]:
    """Second arguments of `explained(…)`, and arguments and defaults called `anchor`."""
    for top in ("broker_core", "pyspark_rmq"):
        for path in sorted((ROOT / top).rglob("*.py")):
            with no_garbage_collection():
                nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            for node in nodes:
                yield from _anchors_of(node)


def _anchors_of(node: ast.AST) -> Iterator[str]:
    found: list[ast.expr | None] = []
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name == "explained":
            found.append(node.args[1])
        found += [keyword.value for keyword in node.keywords if keyword.arg == "anchor"]
    elif isinstance(node, ast.arguments):
        found += [
            default
            for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            if argument.arg == "anchor"
        ]
    for value in found:
        if isinstance(value, ast.Constant) and value.value:
            yield str(value.value)


def test_every_anchor_that_an_error_names_is_on_the_page() -> None:
    anchors = re.findall(r'^<a id="([a-z0-9-]+)"></a>\n### \S', PAGE, re.MULTILINE)
    assert sorted(anchors) == sorted(set(anchors))
    assert set(named_anchors()) == set(anchors)
