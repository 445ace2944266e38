"""The output of a benchmark: lines for people, and records for `report.py`.

    ratio NAME VALUE goal >=X (LOW to HIGH in N rounds, over PEER)
    row TABLE | NAME at X | SETTINGS: MEDIAN UNIT (LOW to HIGH, N rounds)
    info TEXT

With RMQ_BENCH_RESULTS set, each line is also appended to that file as a JSON object, with the part
of the benchmark that it belongs to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring.rounds import Figure, Ratio, percentiles

RESULTS: Final = "RMQ_BENCH_RESULTS"
# Enough to draw a distribution.
_QUANTILES: Final = 101
VALUE_SIZE: Final = "bytes of a value"
# The part of the benchmark that runs now.
part: Final = ContextVar("part", default="")


def ratio(name: str, value: float | Ratio, goal: str, peer: str = "") -> None:
    """The one line per goal."""
    print(ratio_line(name, value, goal, peer), flush=True)
    found = value if isinstance(value, Ratio) else Ratio(value, value, value, 1)
    record("ratio", name=name, goal=goal, peer=peer, **found._asdict())


def row(
    table: str,
    name: str,
    settings: str,
    unit: str,
    values: Figure,
    x: float | None = None,
    x_name: str = VALUE_SIZE,
) -> None:
    """One line of a table. `x` is where it is in a chart."""
    print(row_line(table, name, settings, unit, values, x), flush=True)
    record(
        "row", table=table, name=name, settings=settings, unit=unit, values=values.values, x=x,
        x_name=x_name,
    )  # fmt: skip


def samples(table: str, name: str, settings: str, unit: str, taken: Sequence[float]) -> None:
    """A distribution; percentiles that so few samples cannot tell are left out."""
    found = percentiles(taken)
    text = ", ".join(f"{share} {value:.3g}" for share, value in found.items())
    print(f"row {table} | {name} | {settings}: {text} {unit} ({len(taken)} samples)", flush=True)
    ordered = sorted(taken)
    steps = range(_QUANTILES)
    quantiles = [ordered[(len(ordered) - 1) * step // (_QUANTILES - 1)] for step in steps]
    record(
        "samples", table=table, name=name, settings=settings, unit=unit, count=len(taken),
        percentiles=found, quantiles=quantiles,
    )  # fmt: skip


def info(text: str) -> None:
    """Figures that no goal asks for."""
    print(f"info {text}", flush=True)
    record("info", text=text)


def ratio_line(name: str, value: float | Ratio, goal: str, peer: str = "") -> str:
    if not isinstance(value, Ratio):
        return f"ratio {name} {value:.3g} goal {goal}" + (f" (over {peer})" if peer else "")
    details = f"{value.low:.3g} to {value.high:.3g} in {value.rounds} rounds"
    if peer:
        details += f", over {peer}"
    return f"ratio {name} {value.value:.3g} goal {goal} ({details})"


def row_line(
    table: str, name: str, settings: str, unit: str, values: Figure, x: float | None = None
) -> str:
    count = len(values.values)
    spread = f"{number(values.low)} to {number(values.high)}, {count} rounds"
    if count == 1:
        spread = "one run"
    place = "" if x is None else f" at {x:,}"
    return f"row {table} | {name}{place} | {settings}: {number(values.median)} {unit} ({spread})"


def number(value: float) -> str:
    """Three digits that matter, or all of a larger number."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def record(kind: str, **fields: Any) -> None:
    """Append to the file of records, if there is one."""
    target = os.environ.get(RESULTS)
    if not target:
        return
    one = {"type": kind, "benchmark": Path(sys.argv[0]).stem, "part": part.get(), **fields}
    with Path(target).open("a", encoding="utf-8") as file:
        file.write(json.dumps(one) + "\n")
