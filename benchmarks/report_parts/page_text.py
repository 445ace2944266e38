"""Records of the benchmarks to the text of `docs/benchmarks.md`. No I/O, no clock."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.measuring.parts import ENDED, FAILED
from benchmarks.measuring.results import VALUE_SIZE, number

Record = Mapping[str, Any]

# With more other work on the machine, figures are not valid.
BUSY_CORES_MAX: Final = 0.2


class Call(NamedTuple):
    """One command."""

    command: str
    exit_code: int
    seconds: float
    busy_before: float
    """Cores that were busy in the seconds before it began, so with other work."""
    made: str
    """When, as a date."""
    commit: str


class Run(NamedTuple):
    """A benchmark: its commands, the first of which ran all parts, and what they gave."""

    title: str
    calls: tuple[Call, ...]
    records: tuple[Record, ...]


class Machine(NamedTuple):
    """What the figures depend on."""

    made: str
    """When, as a date."""
    commit: str
    is_clean: bool
    """Whether the sources were those of the commit."""
    facts: tuple[tuple[str, str], ...]
    cores: int


def page(machine: Machine, runs: Sequence[Run], charts: Mapping[str, str]) -> str:
    """The whole page; `charts` maps a section's chart title to the file of its picture."""
    sections = [section(run, charts) for run in runs]
    return "\n".join([*head(machine, runs), *goals(runs), *sections]).rstrip() + "\n"


def merged(old: Sequence[Record], new: Sequence[Record]) -> list[Record]:
    """Records of a benchmark after some of its parts ran again; parts keep their place."""
    again = {one["part"] for one in new}
    by_part: dict[str, list[Record]] = {one["part"]: [] for one in (*old, *new)}
    for one in (*(one for one in old if one["part"] not in again), *new):
        by_part[one["part"]].append(one)
    return [one for records in by_part.values() for one in records]


def problems(run: Run) -> list[str]:
    """Parts without complete figures, each with the reason."""
    states = {one["part"]: one for one in of_type(run.records, "part")}
    found = []
    for name, one in states.items():
        if one["state"] == FAILED:
            found.append(f"{name} ({one['error']})")
        elif one["state"] != ENDED:
            found.append(f"{name} (not finished)")
    last = run.calls[-1]
    if not found and last.exit_code:
        # It ended before it said what it would run.
        found.append(f"`{last.command}` (exit code {last.exit_code})")
    return found


def head(machine: Machine, runs: Sequence[Run]) -> list[str]:
    """How the figures were measured."""
    calls = [call for run in runs for call in run.calls]
    quick = ["--quick" in call.command for call in calls]
    size = "full runs" if not any(quick) else "quick runs: few rows, three rounds"
    if any(quick) and not all(quick):
        size = "full runs, and with `--quick` few rows and three rounds"
    state = "" if machine.is_clean else ", with changes that were not committed"
    lines = [
        "# Benchmarks",
        "",
        f"Written by `benchmarks/report.py` on {machine.made}, from commit {machine.commit}{state};"
        f" {size}. Do not edit: run it again.",
        "",
        "Every row names its settings and shows the median and, in brackets, the range of its"
        " rounds. Competitors share one machine and run in turns whose order changes from round to"
        " round, after an equal warm-up. Ratios are of medians, against the"
        " better of a peer's default and tuned settings; their range is that of the rounds. p99 is"
        " shown from 1,000 samples on. Before a run that fills files, every competitor finds warm"
        " memory (`touch_memory` in `benchmarks/measuring/measure.py`); tables *without"
        " touch_memory* show one run each without that.",
        "",
    ]
    busy = [call for call in calls if call.busy_before > BUSY_CORES_MAX]
    if busy:
        loads = ", ".join(f"`{call.command}` {call.busy_before:.1f}" for call in busy)
        lines += [
            "**The machine was not quiet**: so many cores were busy right before these runs:"
            f" {loads} of {machine.cores}. Their figures do not count.",
            "",
        ]
    for run in runs:
        missing = problems(run)
        if missing:
            lines += [f"**Not complete**: {run.title}: {_cell(', '.join(missing))}.", ""]
    lines += ["| Machine and versions | |", "|---|---|"]
    lines += [f"| {name} | {_cell(value)} |" for name, value in machine.facts]
    lines += ["", "| Command | Made | Took | Busy cores before |", "|---|---|---|---|"]
    lines += [
        f"| `{call.command}` | {call.made}, {call.commit} | {call.seconds / 60:.0f} min"
        f" | {call.busy_before:.1f} |"
        for call in calls
    ]
    return [*lines, ""]


def goals(runs: Sequence[Run]) -> list[str]:
    """One line for each ratio that has a goal; bold if it misses."""
    lines = ["## Goals", "", "| Ratio | Value | Range | Over | Goal |", "|---|---|---|---|---|"]
    for run in runs:
        for one in of_type(run.records, "ratio"):
            if one["goal"] == "none":
                continue
            value = number(one["value"])
            shown = value if meets(one["value"], one["goal"]) else f"**{value}**"
            spread = "" if one["rounds"] == 1 else f"{number(one['low'])} to {number(one['high'])}"
            lines.append(
                f"| {run.title}: `{one['name']}` | {shown} | {spread} | {_cell(one['peer'])}"
                f" | {one['goal'].replace('>=', '≥ ').replace('<=', '≤ ')} |"
            )
    return [*lines, ""]


def meets(value: float, goal: str) -> bool:
    """Whether a value meets `>=X` or `<=X`."""
    limit = float(goal[2:])
    return value >= limit if goal.startswith(">=") else value <= limit


def section(run: Run, charts: Mapping[str, str]) -> str:
    """The tables of one benchmark, each with its picture if it has one."""
    lines = [f"## {run.title}", ""]
    for title, records in tables(run.records).items():
        lines += [f"### {title[0].upper()}{title[1:]}", ""]
        picture = charts.get(chart_key(run, title))
        if picture:
            lines += [f"![{title}]({picture})", ""]
        lines += table(records)
    return "\n".join(lines)


def chart_key(run: Run, title: str) -> str:
    return f"{run.title}: {title}"


def tables(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Rows and distributions by the title of their table, in the order of the run."""
    found: dict[str, list[Record]] = {}
    for one in records:
        if one["type"] in ("row", "samples"):
            found.setdefault(one["table"], []).append(one)
    return found


def table(records: Sequence[Record]) -> list[str]:
    """A table of one kind of record."""
    if records[0]["type"] == "samples":
        lines = ["| | Settings | p50 | p90 | p99 | Samples |", "|---|---|---|---|---|---|"]
        for one in records:
            shares = [
                number(one["percentiles"][share]) + f" {one['unit']}"
                if share in one["percentiles"]
                else "too few samples"
                for share in ("p50", "p90", "p99")
            ]
            cells = [one["name"], one["settings"], *shares, str(one["count"])]
            lines.append("| " + " | ".join(map(_cell, cells)) + " |")
        return [*lines, ""]
    has_x = any(one.get("x") is not None for one in records)
    x_name = records[0].get("x_name", VALUE_SIZE)
    lines = [f"| | {x_name.capitalize()} | Settings | Median | Range |", "|---|---|---|---|---|"]
    if not has_x:
        lines = ["| | Settings | Median | Range |", "|---|---|---|---|"]
    for one in records:
        values = one["values"]
        spread = f"{number(min(values))} to {number(max(values))}"
        if len(values) == 1:
            spread = "one run"
        median = f"{number(statistics.median(values))} {one['unit']}"
        cells = [one["name"], one["settings"], median, spread]
        if has_x:
            cells.insert(1, "" if one["x"] is None else f"{one['x']:,}")
        lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return [*lines, ""]


def of_type(records: Iterable[Record], kind: str) -> list[Record]:
    return [one for one in records if one["type"] == kind]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
