"""The tables of docs/source.md and docs/sink.md have every option with its default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq.options import CONNECTION, KNOWN, Known
from pyspark_rmq.sink.sink_options import SINK_OPTIONS

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES: Mapping[str, Mapping[str, Known]] = {"source.md": KNOWN, "sink.md": SINK_OPTIONS}
PASSED_ON_BY_SPARK = {"checkpointLocation", "queryName"}
IN_WORDS = {
    "rmq.namesrv.addr": "required, or `rmq.embedded`",
    "subscribe": "one of three",
    "subscribePattern": "one of three",
    "assign": "one of three",
    "startingOffsets": "`latest`; `earliest` for batch",
    "endingOffsets": "`latest`",
    "maxTriggerDelay": "15m",
    "commitOffsetsToBroker": "true with `rmq.group`",
    "queueSelector": "by the columns",
    "sinkId": "the query's id",
}
"""Defaults that depend on others, or are written in another unit."""
_OPTION_TABLE = re.compile(
    r"^\| Option \| Default \| Meaning \|\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE
)


def documented_defaults(text: str) -> dict[str, str]:
    """Option -> text in the column Default, of all tables of options on a page."""
    found = {}
    for table in _OPTION_TABLE.findall(text):
        for row in table.splitlines():
            names, default, _ = (cell.strip() for cell in row.strip("|").split(" | ", 2))
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", names), default)
    return found


def default_text(name: str, value: Any) -> str:
    """How a page writes the default of an option."""
    if name in IN_WORDS:
        return IN_WORDS[name]
    if value is None or value in ("", ()):
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("page", PAGES)
def test_each_option_has_a_row_with_its_default(page: str) -> None:
    found = documented_defaults((DOCS / page).read_text(encoding="utf-8"))
    wrong = []
    for name, known in PAGES[page].items():
        if name in PASSED_ON_BY_SPARK:
            continue
        shared = page == "sink.md" and name in CONNECTION and name != "rmq.namesrv.addr"
        wanted = "as for the source" if shared else default_text(name, known.default)
        shown = found.get(name, "no row")
        if wanted not in (shown, shown.replace("`", "")):
            wrong.append(f"{name}: the page has {shown}, the code {wanted}")
        wrong += [f"{alias}: no row" for alias in known.aliases if found.get(alias) != shown]
    assert not wrong


def test_a_wrong_default_is_found() -> None:
    text = "| Option | Default | Meaning |\n|---|---|---|\n| `a` (`b`), `c` | 3 | x \\|\\| y |\n"
    assert documented_defaults(text) == {"a": "3", "b": "3", "c": "3"}
    assert default_text("a", 4) != "3"


@pytest.mark.parametrize("page", PAGES)
def test_no_row_names_an_option_that_does_not_exist(page: str) -> None:
    known = {
        spelling for name, option in PAGES[page].items() for spelling in (name, *option.aliases)
    }
    found = documented_defaults((DOCS / page).read_text(encoding="utf-8"))
    assert set(found) <= known
