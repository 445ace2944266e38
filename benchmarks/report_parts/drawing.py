"""Pictures of the report: SVG by matplotlib, the same bytes for the same records."""

from __future__ import annotations

import importlib
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.measuring.results import VALUE_SIZE
from benchmarks.report_parts.page_text import Record, Run, chart_key, tables

BAR_UNITS: Final = ("CPU s per million", "MB")
_WIDTH: Final = 8.0
_HEIGHT: Final = 4.2
_BAR_HEIGHT: Final = 0.4
# A linear axis cannot show values that are so far apart.
_LINEAR_MAX: Final = 20


def draw_all(runs: Sequence[Run], directory: Path) -> dict[str, str]:
    """Draw a picture for each table that needs one; returns the file name by the chart's key."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.svg"):
        old.unlink()
    found = {}
    for run in runs:
        for title, records in tables(run.records).items():
            kind = chart_kind(records)
            if kind:
                name = f"{file_name(chart_key(run, title))}.svg"
                draw(kind, title, records, directory / name)
                found[chart_key(run, title)] = name
    return found


def check() -> None:
    """Fails where matplotlib is missing."""
    importlib.import_module("matplotlib.figure")


def chart_kind(records: Sequence[Record]) -> str:
    """curve, distribution, bars, or empty if the table is enough."""
    if records[0]["type"] == "samples":
        return "distribution"
    if len({one["x"] for one in records if one.get("x") is not None}) > 1:
        return "curve"
    return "bars" if records[0]["unit"] in BAR_UNITS and len(records) > 1 else ""


def file_name(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def draw(kind: str, title: str, records: Sequence[Record], path: Path) -> None:
    """One picture of one table."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib.figure import Figure

    # No date and no random ids: a report that is built again differs only where figures do.
    with mpl.rc_context({"svg.hashsalt": "pyspark-rmq", "svg.fonttype": "none"}):
        height = max(_HEIGHT, _BAR_HEIGHT * len(records)) if kind == "bars" else _HEIGHT
        picture = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = picture.add_subplot()
        axes.set_title(title)
        {"curve": _curve, "distribution": _distribution, "bars": _bars}[kind](axes, records)
        picture.savefig(path, format="svg", metadata={"Date": None})
    # matplotlib leaves spaces at the ends of lines.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def _curve(axes: Any, records: Sequence[Record]) -> None:
    """Median by x, with the range as a bar; one line for each competitor."""
    import matplotlib as mpl

    placed = [one for one in records if one.get("x") is not None]
    # The default has ten colours, and a sink has eleven competitors.
    axes.set_prop_cycle(color=mpl.colormaps["tab20"].colors)
    for name in dict.fromkeys(one["name"] for one in placed):
        own = sorted((one for one in placed if one["name"] == name), key=lambda one: one["x"])
        middles = [statistics.median(one["values"]) for one in own]
        ranges = [
            [middle - min(one["values"]) for middle, one in zip(middles, own, strict=True)],
            [max(one["values"]) - middle for middle, one in zip(middles, own, strict=True)],
        ]
        places = [one["x"] for one in own]
        axes.errorbar(places, middles, yerr=ranges, marker="o", capsize=3, label=name)
    places = sorted({one["x"] for one in placed})
    axes.set_xscale("symlog" if places[0] <= 0 else "log")
    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.minorticks_off()
    axes.set_xlabel(placed[0].get("x_name", VALUE_SIZE))
    if _is_wide(placed):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_ylabel(placed[0]["unit"])
    axes.legend(fontsize="small")


def _is_wide(records: Sequence[Record]) -> bool:
    """Whether the values are too far apart for a linear axis."""
    middles = [statistics.median(one["values"]) for one in records]
    return min(middles) > 0 and max(middles) / min(middles) > _LINEAR_MAX


def _distribution(axes: Any, records: Sequence[Record]) -> None:
    """Cumulative distribution of the samples."""
    for one in records:
        shares = range(len(one["quantiles"]))
        axes.plot(one["quantiles"], shares, label=f"{one['name']} ({one['count']} samples)")
    axes.set_xscale("log")
    axes.set_xlabel(records[0]["unit"])
    axes.set_ylabel("% of samples")
    axes.legend(fontsize="small")


def _bars(axes: Any, records: Sequence[Record]) -> None:
    names = [f"{one['name']}\n{one['settings']}" for one in records]
    axes.barh(names, [statistics.median(one["values"]) for one in records])
    axes.invert_yaxis()
    if _is_wide(records):
        axes.set_xscale("log")
    axes.set_xlabel(records[0]["unit"])
    axes.tick_params(axis="y", labelsize="x-small")
