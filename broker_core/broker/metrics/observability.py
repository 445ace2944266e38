"""Request timing, the log of slow requests, and metrics over HTTP.

Active only if configured; otherwise requests have no overhead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.access.credentials import read_secret_file
from broker_core.broker.context import BrokerContext
from broker_core.broker.metrics.broker_metrics import BrokerMetrics, MetricSources
from broker_core.broker.metrics.endpoint import MetricsEndpoint
from broker_core.broker.metrics.text import MetricsText
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.remoting.limits.connection_load import ConnectionLoad
from broker_core.remoting.limits.request_budget import HostLoad, RequestBudget
from broker_core.remoting.request_dispatch import Handler
from broker_core.remoting.request_timing import RequestTiming
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)


class Observability:
    """`address` is that of the metrics while they are served."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._text = MetricsText() if config.metrics_exporter == "PROM" else None
        self._timing: RequestTiming | None = None
        self._endpoint: MetricsEndpoint | None = None
        self.address = ""

    def timed(self, handler: Handler) -> Handler:
        """`handler`, with its time measured if metrics or the slow log need it."""
        if self._text is None and not self._config.slow_request_ms:
            return handler
        self._timing = RequestTiming(handler, self._clock, self._config.slow_request_ms)
        return self._timing

    @property
    def new_load(self) -> Callable[[RequestBudget, HostLoad], ConnectionLoad]:
        """Factory of the counters of a connection."""
        return ConnectionLoad if self._timing is None else self._timing.new_load

    async def start(
        self,
        context: BrokerContext,
        sources: MetricSources,
        budget: RequestBudget,
        refused: Callable[[], int],
    ) -> None:
        """Serve the metrics. Raises `OSError` when the port is taken."""
        text = self._text
        if text is None:
            return
        metrics = BrokerMetrics(context, sources, budget, self._timing, refused)
        config = self._config
        token = ""
        if config.metrics_token_file:
            token = read_secret_file(config.metrics_token_file, "metricsTokenFile")
        self._endpoint = MetricsEndpoint(
            lambda: text.render(metrics.collect()), text.content_type, self._clock, token
        )
        port = await self._endpoint.start(config.metrics_host, config.metrics_port)
        host = config.metrics_host
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _log.info("metrics are on http://%s/metrics", self.address)

    async def stop(self) -> None:
        """Stop serving the metrics."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.stop()
