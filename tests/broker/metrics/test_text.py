"""Metrics as Prometheus' text."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.metrics.text import MetricsText
from broker_core.errors import InvalidConfig


def test_a_missing_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return imported(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidConfig, match=r"pyspark-rmq\[metrics\]"):
        MetricsText()
