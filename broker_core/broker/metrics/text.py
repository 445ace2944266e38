"""Metrics in Prometheus' text format, with the optional package `prometheus_client`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from broker_core.broker.metrics.broker_metrics import COUNTER, HISTOGRAM, Metric
from broker_core.errors import InvalidConfig


class MetricsText:
    """Renders metrics. Raises `InvalidConfig` without the package."""

    def __init__(self) -> None:
        try:
            from prometheus_client import core, exposition
        except ImportError:
            raise InvalidConfig(
                "metricsExporterType",
                "PROM",
                "the package prometheus_client is missing: pip install 'pyspark-rmq[metrics]'",
            ) from None
        self._core = core
        self._exposition = exposition

    @property
    def content_type(self) -> str:
        """The HTTP content type."""
        return str(self._exposition.CONTENT_TYPE_LATEST)

    def render(self, metrics: Iterable[Metric]) -> bytes:
        """The text of one scrape."""
        return bytes(self._exposition.generate_latest(_Collected(self._families(metrics))))

    def _families(self, metrics: Iterable[Metric]) -> Iterator[Any]:
        core = self._core
        for metric in metrics:
            names = list(metric.label_names)
            if metric.kind == HISTOGRAM:
                family = core.HistogramMetricFamily(metric.name, metric.text, labels=names)
                for sample in metric.samples:
                    buckets = _cumulative(metric.bounds, sample.buckets)
                    family.add_metric(sample.labels, buckets, sample.value)
            else:
                kind = core.GaugeMetricFamily
                if metric.kind == COUNTER:
                    kind = core.CounterMetricFamily
                family = kind(metric.name, metric.text, labels=names)
                for sample in metric.samples:
                    family.add_metric(sample.labels, sample.value)
            yield family


class _Collected:
    """A registry for the package."""

    def __init__(self, families: Iterable[Any]) -> None:
        self._families = families

    def collect(self) -> Iterable[Any]:
        return self._families


def _cumulative(bounds: tuple[int, ...], counts: tuple[int, ...]) -> list[tuple[str, int]]:
    found, total = [], 0
    for bound, count in zip((*map(str, bounds), "+Inf"), counts, strict=True):
        total += count
        found.append((bound, total))
    return found
