"""What a broker shows of itself: times of requests, slow ones in the log, metrics over HTTP.

Built only when the configuration asks for it; a broker without it is not slowed down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.access.credentials import read_secret_file
from broker_core.broker.broker_config import BrokerConfig
from broker_core.broker.broker_parts import BrokerParts
from broker_core.broker.metric_tallies import MetricTallies
from broker_core.broker.metrics import BrokerMetrics
from broker_core.broker.metrics_endpoint import MetricsEndpoint
from broker_core.broker.metrics_text import MetricsText
from broker_core.remoting.connection_load import ConnectionLoad
from broker_core.remoting.request_budget import HostLoad, RequestBudget
from broker_core.remoting.request_dispatch import Handler
from broker_core.remoting.request_timing import RequestTiming
from broker_core.runtime.clock import Clock

_log = logging.getLogger(__name__)


class Observability:
    """One broker's; `address` is that of the metrics while they are served."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._text = MetricsText() if config.metrics_exporter == "PROM" else None
        self._timing: RequestTiming | None = None
        self._endpoint: MetricsEndpoint | None = None
        self.address = ""

    def timed(self, handler: Handler) -> Handler:
        """`handler`, measured if anybody wants to know."""
        if self._text is None and not self._config.slow_request_ms:
            return handler
        self._timing = RequestTiming(handler, self._clock, self._config.slow_request_ms)
        return self._timing

    @property
    def new_load(self) -> Callable[[RequestBudget, HostLoad], ConnectionLoad]:
        """What the connections of the measured server count with."""
        return ConnectionLoad if self._timing is None else self._timing.new_load

    async def start(
        self, parts: BrokerParts, budget: RequestBudget, refused: Callable[[], int]
    ) -> None:
        """Serve the metrics. Raises `OSError` when the port is taken."""
        text = self._text
        if text is None:
            return
        parts.stats.tallies = MetricTallies()
        metrics = BrokerMetrics(parts, budget, self._timing, refused)
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
        """Serve no longer."""
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            await endpoint.stop()
