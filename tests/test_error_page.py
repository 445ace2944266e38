"""docs/errors.md has a section for each error that names one; its messages are the code's."""

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


def _text(node: ast.AST) -> str:
    """A literal, with `…` for each value in it."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "…"


def literals() -> set[str]:
    """Every text in the code."""
    found = set()
    for top in ("broker_core", "pyspark_rmq"):
        for path in (ROOT / top).rglob("*.py"):
            with no_garbage_collection():
                nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                found |= {
                    _text(node)
                    for node in nodes
                    if isinstance(node, ast.JoinedStr | ast.Constant) and len(_text(node)) > 8
                }
    return found


def messages() -> list[str]:
    """Headings that are messages, and messages in lists and in first cells of tables."""
    headings = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    listed = re.findall(r"^- `([^`]*…[^`]*)`$", PAGE, re.MULTILINE)
    _, more = PAGE.split("\n## More errors\n")
    cells = re.findall(r"^\| `([^`]+)` \| ", more, re.MULTILINE)
    return [text for text in headings if "…" in text or text[0].islower()] + listed + cells


def unknown_parts(message: str, texts: str) -> list[str]:
    """Parts of a message, between the values in it, that no text has."""
    parts = (part.strip(" ,;:.") for part in re.split("…|'|=|: ", message))
    return [part for part in parts if len(part) > 8 and part not in texts]


def test_the_messages_of_the_page_are_those_of_the_code() -> None:
    texts = "\n".join(literals())
    assert len(messages()) > 40
    assert not {
        message: found for message in messages() if (found := unknown_parts(message, texts))
    }


def test_a_message_that_was_reworded_is_found() -> None:
    texts = "topic … does not exist at …"
    assert not unknown_parts("topic … does not exist at …", texts)
    assert unknown_parts("topic … is not known at …", texts) == ["is not known at"]
