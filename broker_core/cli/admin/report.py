"""The report of a command, printed as aligned text or JSON.

A report is a list of parts. `Table` has a row per thing, `Facts` a line per property of one thing,
`Note` is a sentence for people. JSON is one document: the table as a list of objects, the facts as
an object; several parts become an object of them by title. Notes are not in it.
"""

from __future__ import annotations

import datetime
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from unicodedata import east_asian_width

from broker_core.cli.colours import styled, wants_colour

_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_GAP: Final = "  "
# Columns whose values are highlighted unless they are 0 or empty.
_NOTABLE: Final = {"behind": "yellow", "waiting": "yellow", "problem": "red"}


class EpochMs(int):
    """A time: a number in JSON, local time in text. 0 or less means none."""

    def __str__(self) -> str:
        if self <= 0:
            return "-"
        moment = datetime.datetime.fromtimestamp(int(self) / 1000)
        return moment.strftime("%Y-%m-%d %H:%M:%S") + f",{int(self) % 1000:03}"


class Table(NamedTuple):
    """Rows with one value per column; column names are the keys of the JSON objects."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    title: str = ""


class Facts(NamedTuple):
    """Properties of one thing."""

    values: Mapping[str, Any]
    title: str = ""


class Note(NamedTuple):
    """A sentence; text output only."""

    text: str


Report: TypeAlias = Sequence["Table | Facts | Note"]


def print_report(report: Report, is_json: bool) -> None:
    """Write it to standard output, with colours if that is a terminal."""
    text = report_json(report) if is_json else report_text(report, wants_colour(sys.stdout))
    sys.stdout.write(text)


def report_text(report: Report, has_colours: bool = False) -> str:
    """Aligned columns, numbers to the right, an empty line between the parts."""
    return "\n".join(_part_text(part, has_colours) for part in report)


def report_json(report: Report) -> str:
    """One document and a line end."""
    parts = [part for part in report if not isinstance(part, Note)]
    if len(parts) == 1:
        document = _part_object(parts[0])
    else:
        document = {part.title or f"part{n}": _part_object(part) for n, part in enumerate(parts)}
    return json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n"


def _part_object(part: Table | Facts) -> Any:
    if isinstance(part, Facts):
        return dict(part.values)
    return [dict(zip(part.columns, row, strict=True)) for row in part.rows]


def _part_text(part: Table | Facts | Note, has_colours: bool) -> str:
    paint = styled if has_colours else _plain
    if isinstance(part, Note):
        return paint(part.text, "dim") + "\n"
    head = paint(part.title, "bold") + "\n" if part.title else ""
    if isinstance(part, Facts):
        lines = [(key, _shown(value)) for key, value in part.values.items()]
        return head + _aligned(lines, [False, False], [("bold", "")] * len(lines), paint)
    if not part.rows:
        return f"{head}(none)\n"
    rows = [tuple(map(_shown, row)) for row in part.rows]
    is_number = [
        all(isinstance(row[place], int | float) or row[place] is None for row in part.rows)
        for place in range(len(part.columns))
    ]
    titles = tuple(_CAMEL.sub(" ", column).upper() for column in part.columns)
    notable = [_NOTABLE.get(column, "") for column in part.columns]
    styles = [("bold",) * len(titles)]
    styles += [
        tuple(style if value else "" for style, value in zip(notable, row, strict=True))
        for row in part.rows
    ]
    return head + _aligned([titles, *rows], is_number, styles, paint)


def _plain(text: str, style: str) -> str:
    return text


def _aligned(
    rows: Sequence[tuple[str, ...]],
    is_number: Sequence[bool],
    styles: Sequence[tuple[str, ...]],
    paint: Callable[[str, str], str],
) -> str:
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)] if rows else []
    lines = []
    for row, styles_of_row in zip(rows, styles, strict=True):
        cells = [
            _padded(text, width, right)
            for text, width, right in zip(row, widths, is_number, strict=True)
        ]
        cells[-1] = cells[-1].rstrip()
        painted = [
            paint(cell, style) if style else cell
            for cell, style in zip(cells, styles_of_row, strict=True)
        ]
        lines.append(_GAP.join(painted).rstrip() + "\n")
    return "".join(lines)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _width(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def _shown(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, EpochMs):
        return str(value)
    if isinstance(value, float):
        return f"{value:.2f}"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple | set) else str(value)
    # One line per row and no control characters: the text may come from a peer.
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
