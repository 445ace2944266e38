"""What every feature of a broker offers: request handlers, and its steps of start and stop."""

from __future__ import annotations

from broker_core.broker.request_router import Processor
from broker_core.broker.settings.broker_config import BrokerConfig


class Feature:
    """One feature of one broker. Event loop only. A hook that is not overridden does nothing.

    A feature receives the context and what it needs from other features as constructor arguments.
    `Broker` calls the hooks of all features, in the order of its list unless noted here.
    """

    def processors(self) -> tuple[Processor, ...]:
        """The handlers of this feature's request codes."""
        return ()

    def recover(self) -> None:
        """Resume from the log what an earlier run left open. On a master, before it serves."""

    async def start(self) -> None:
        """Begin background work. The port is served already."""

    def settings_problem(self, config: BrokerConfig) -> str | None:
        """Why these live settings cannot be applied; None if they can."""
        return None

    def settings_changed(self, config: BrokerConfig) -> None:
        """Apply live settings that have passed `settings_problem` of every feature."""

    def release(self) -> None:
        """Answer held requests, so that the server can stop. In reverse order."""

    async def stop(self) -> None:
        """End background work and save. The server is stopped, the store open. In reverse order.

        Also called for a feature that was never started.
        """
