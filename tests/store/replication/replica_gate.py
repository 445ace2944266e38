"""The slaves of a store, as a test sets them."""

from __future__ import annotations

from broker_core.runtime.watermark import Watermark
from broker_core.store.message_store import MessageStore


class Gate:
    """Slaves that a test moves."""

    def __init__(self, store: MessageStore) -> None:
        self.confirmed = Watermark(store.log_range[1])
        self.is_available = True
        self._store = store

    def available(self, position: int) -> bool:
        return self.is_available

    def reach(self, position: int) -> None:
        self.confirmed.advance(position)
        self._store.replication.confirmed_moved()
