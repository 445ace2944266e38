"""Clients of this process, shared by tasks and batches and run by one thread.

Spark forks its workers and kills them without notice: a forked process makes its own clients, and
none of them needs an orderly stop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from broker_core import ClientInstance, LoopThread
from pyspark_rmq.options import ConnectionOptions

T = TypeVar("T")

_CLIENTS_MAX: Final = 16


class Connected:
    """A client and the thread of its event loop."""

    def __init__(self, thread: LoopThread, client: ClientInstance) -> None:
        self._thread = thread
        self.client = client

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the client's event loop and wait for it."""
        return self._thread.call(coroutine, timeout_s)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> Any:
        """Start a coroutine on the client's event loop; returns a future."""
        return self._thread.begin(coroutine)


class _Clients:
    """Clients by connection options, least recently used first."""

    def __init__(self) -> None:
        # Readers may be constructed on any thread.
        self._lock = threading.Lock()
        self._process = 0
        self._thread: LoopThread | None = None
        self._clients: dict[ConnectionOptions, ClientInstance] = {}
        # Objects of the parent process: kept so that they are neither used nor destroyed.
        self._inherited: list[object] = []

    def of(self, options: ConnectionOptions) -> Connected:
        """The client for these options; started if there is none."""
        with self._lock:
            self._leave_parent()
            if self._thread is None or not self._thread.is_alive:
                self._thread, self._clients = LoopThread(), {}
            client = self._clients.pop(options, None)
            if client is None:
                client = self._thread.call(_started(options))
            self._clients[options] = client
            while len(self._clients) > _CLIENTS_MAX:
                oldest = self._clients.pop(next(iter(self._clients)))
                self._thread.call(oldest.stop())
            return Connected(self._thread, client)

    def close(self) -> None:
        """Stop all of them, and the thread."""
        with self._lock:
            self._leave_parent()
            thread, clients = self._thread, self._clients
            self._thread, self._clients = None, {}
            if thread is not None and thread.is_alive:
                for client in clients.values():
                    thread.call(client.stop())
                thread.stop()

    def _leave_parent(self) -> None:
        if self._process != os.getpid():
            self._inherited += [self._thread, self._clients]
            self._process, self._thread, self._clients = os.getpid(), None, {}


async def _started(options: ConnectionOptions) -> ClientInstance:
    client = ClientInstance(options.client_config())
    await client.start()
    return client


_clients = _Clients()


def connect(options: ConnectionOptions) -> Connected:
    """The client of this process for these options. It connects on first use."""
    return _clients.of(options)


def close_connections() -> None:
    """Stop the clients of this process; the next `connect` makes new ones."""
    _clients.close()
