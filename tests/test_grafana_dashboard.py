"""`docs/grafana/`: every metric and label of the dashboard is one of `docs/metrics.md`.

`tests/broker/metrics/test_broker_metrics.py` compares that page with a running broker.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "docs" / "grafana" / "pyspark-rmq-broker.json"
OF_ALL = frozenset({"cluster", "node_type", "node_id"})
_ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\| ([^|]*) \|$", re.MULTILINE)
_METRIC = re.compile(r"\b(?:rocketmq|rmq)_\w+")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_MATCHER = re.compile(r"(\w+) *=~?\s*\"")
_QUERY = re.compile(r"label_values\((.*), (\w+)\)")


def documented() -> dict[str, frozenset[str]]:
    """Samples -> labels; a histogram has three kinds of samples."""
    found: dict[str, frozenset[str]] = {}
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for name, labels, meaning in _ROW.findall(page):
        own = OF_ALL | frozenset(re.findall(r"`(\w+)`", labels))
        if meaning.startswith("histogram"):
            found |= {f"{name}_bucket": own | {"le"}, f"{name}_sum": own, f"{name}_count": own}
        else:
            found[name] = own
    return found


def expressions(dashboard: Mapping[str, Any]) -> Iterator[str]:
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        query = _QUERY.fullmatch(variable["query"])
        if query is not None:
            yield f"count by ({query[2]}) ({query[1]})"


def mistakes(expression: str, known: Mapping[str, frozenset[str]]) -> list[str]:
    """Unknown metrics of an expression, else labels that not all of its metrics have."""
    metrics = set(_METRIC.findall(expression))
    unknown = sorted(metrics - known.keys())
    if unknown or not metrics:
        return unknown or [expression]
    used = set(_MATCHER.findall(expression))
    used |= {label.strip() for part in _GROUPING.findall(expression) for label in part.split(",")}
    return sorted(used - frozenset.intersection(*(known[name] for name in metrics)))


def test_every_metric_and_label_exists() -> None:
    known = documented()
    assert len(known) > 50
    found = list(expressions(json.loads(DASHBOARD.read_text(encoding="utf-8"))))
    assert len(found) > 20
    assert {text: wrong for text in found if (wrong := mistakes(text, known))} == {}


def test_a_metric_or_label_that_does_not_exist_is_found() -> None:
    known = {"rmq_a": OF_ALL, "rocketmq_b_bucket": OF_ALL | {"le", "topic"}}
    assert mistakes('sum by (node_id) (rmq_a{cluster=~"$cluster"})', known) == []
    assert mistakes("sum by (le, topic) (rate(rocketmq_b_bucket[5m]))", known) == []
    assert mistakes("rmq_c / rmq_a", known) == ["rmq_c"]
    assert mistakes("rocketmq_b", known) == ["rocketmq_b"]
    assert mistakes("sum by (topic) (rmq_a)", known) == ["topic"]
    assert mistakes('rmq_a{group="x"}', known) == ["group"]
    assert mistakes("up", known) == ["up"]


def test_every_panel_says_what_it_shows() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    shown = [panel for panel in panels if panel["type"] != "row"]
    assert all(panel["description"] and panel["targets"] for panel in shown)
