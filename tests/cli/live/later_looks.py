"""Messages that come between two looks, and a clock that a test moves."""

from __future__ import annotations

from typing import Any

from broker_core import OutgoingMessage, SyncProducer
from broker_core.embedded.embedded_broker import EmbeddedBroker


def send(broker: EmbeddedBroker, topic: str, count: int) -> None:
    with SyncProducer(broker.name_server) as producer:
        for number in range(count):
            producer.send(OutgoingMessage(topic, b"%d" % number))


class Session:
    """What a look needs, with a clock of its own."""

    def __init__(self, admin: Any) -> None:
        self.admin = admin.asynchronous
        self.clock = self
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now
