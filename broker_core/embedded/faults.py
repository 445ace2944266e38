"""`broker.faults`: what can go wrong with a broker, on purpose, for tests of pipelines."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from broker_core.embedded.broker_process import BrokerProcess
from broker_core.errors import EmbeddedBrokerFailed, TopicNotExist
from broker_core.runtime.clock import sleep

if TYPE_CHECKING:
    from broker_core.client.admin.admin import Admin
    from broker_core.client.connection.config import ClientConfig

_PERMISSION: Final = "brokerPermission"
_READ_ONLY: Final = "4"
_WRITE: Final = 2
_POLL_S: Final = 0.05
_SHOWN_WITHIN_S: Final = 120.0


class Faults:
    """Faults of one embedded broker. `with` undoes a fault at the end of the block."""

    def __init__(
        self, process: Callable[[], BrokerProcess | None], config: Callable[[], ClientConfig]
    ) -> None:
        self._process = process
        self._config = config

    def kill(self) -> None:
        """Kill the process at once, as a crash would; `broker.start()` starts it again."""
        self._running().kill()

    def pause(self) -> None:
        """Stop the process until `resume`: connections stay open and nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on. Harmless for one that runs."""
        self._running().send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause during the block, as a long garbage collection or a cut cable would."""
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def refused_sends(self) -> Iterator[None]:
        """Refuse every send during the block; reads go on.

        A client that knows the route is answered `NoPermission`. One that asks for it gets no
        writable queue and fails with `BrokerNotExist`.
        """
        before = self._change(_READ_ONLY)
        try:
            yield
        finally:
            self._change(before)

    def _change(self, value: str) -> str:
        """Set the permission of the broker, also in the routes; returns the one that it had."""
        from broker_core.client.admin.brokers import broker_settings, change_settings
        from broker_core.client.blocking.admin import SyncAdmin

        async def change(admin: Admin) -> str:
            [address] = (await admin.masters()).values()
            before = (await broker_settings(admin, address))[_PERMISSION]
            await change_settings(admin, address, {_PERMISSION: value})
            while not await _is_shown(admin, int(value)):
                await sleep(_POLL_S)
            return before

        with SyncAdmin(self._config()) as admin:
            return admin.call(change(admin.asynchronous), _SHOWN_WITHIN_S)

    def _running(self) -> BrokerProcess:
        process = self._process()
        if process is None or process.exit_code is not None:
            raise EmbeddedBrokerFailed("the broker is not running; call start()")
        return process


async def _is_shown(admin: Admin, permission: int) -> bool:
    """Whether the name server's routes have the permission of the broker."""
    for topic in await admin.topics():
        try:
            queues = (await admin.route(topic)).queues
        except TopicNotExist:
            # Deleted meanwhile.
            continue
        may_write = any(queue.perm & _WRITE for queue in queues)
        if may_write and not permission & _WRITE:
            return False
        if may_write:
            return True
    return not permission & _WRITE
