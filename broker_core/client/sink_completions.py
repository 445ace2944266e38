"""Which batches on several brokers this process has seen completed on all of them.

The next batch need not ask about those again: a broker that has been taken away since then would
hold up every later batch, though it lacks nothing.
"""

from __future__ import annotations

import weakref
from typing import Final

from broker_core.client.client_instance import ClientInstance

SINKS_MAX: Final = 64


class Completions:
    """The last such batch of each sink; sinks that were silent for long are forgotten."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int, str]] = {}

    def note(self, sink: str, attempt: tuple[int, int, str]) -> None:
        """Every broker has published its part of this (batch, token, name)."""
        self._last.pop(sink, None)
        self._last[sink] = attempt
        while len(self._last) > SINKS_MAX:
            del self._last[next(iter(self._last))]

    def has(self, sink: str, attempt: tuple[int, int, str]) -> bool:
        """Whether it is known to be complete; False says nothing."""
        return self._last.get(sink) == attempt


# Sink clients come and go with every batch, the client below them stays.
_by_client: weakref.WeakKeyDictionary[ClientInstance, Completions] = weakref.WeakKeyDictionary()


def completions_of(client: ClientInstance) -> Completions:
    """Those that were seen through this client."""
    return _by_client.setdefault(client, Completions())
