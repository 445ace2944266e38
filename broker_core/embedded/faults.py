"""`broker.faults`: faults of a broker for tests of pipelines.

Faults are requested over the pipe that is the broker's standard input, which only the process that
has started it has. Pauses and kills are signals.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from broker_core.embedded.broker_process import BrokerProcess
from broker_core.embedded.named_broker import ForeignProcess
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
_ANSWER_WITHIN_S: Final = 120.0
# A fault ends after this time even if its block does not.
LIMIT_S: Final = 600.0


class Faults:
    """Faults of one embedded broker. `with` undoes a fault at the end of the block.

    `limit_s` ends a fault that lasts too long, for example in a test that hangs.
    """

    def __init__(
        self,
        process: Callable[[], BrokerProcess | ForeignProcess | None],
        is_allowed: bool,
        config: Callable[[], ClientConfig],
        *,
        start: Callable[[], object],
        restart: Callable[[], object],
    ) -> None:
        self._process = process
        self._is_allowed = is_allowed
        self._config = config
        self._start = start
        self._restart = restart

    # The process

    def kill(self) -> None:
        """Kill the process at once, as a crash would; `broker.start()` starts it again."""
        self._running().kill()

    @contextmanager
    def kill_at(
        self, point: str, *, occurrence: int = 1, limit_s: float = LIMIT_S
    ) -> Iterator[KillPoint]:
        """Kill the broker when it passes `point` for the `occurrence`-th time in the block.

        At the end of the block a broker that was killed is started again on the same store. The
        points are listed in `docs/testing.md`.
        """
        process = self._running()
        self._ask("begin", "kill_at", point=point, occurrence=occurrence, limit_s=limit_s)
        try:
            yield KillPoint(point, process)
        finally:
            if process.exit_code is None:
                self._ask("end", "kill_at")
            else:
                self._start()

    def pause(self) -> None:
        """Stop the process until `resume`: connections stay open and nothing is answered."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process continue. Harmless for one that runs."""
        self._running().send_signal(signal.SIGCONT)

    @contextmanager
    def paused(self, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Pause during the block, as a long garbage collection or a swapping machine would."""
        process = self._running()
        self.pause()
        timer = threading.Timer(limit_s, process.send_signal, (signal.SIGCONT,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self.resume()

    # Requests

    @contextmanager
    def busy(self, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Answer `SystemBusy` to every request but heartbeats during the block."""
        with self._fault("busy", limit_s=limit_s):
            yield

    @contextmanager
    def refused_sends(self) -> Iterator[None]:
        """Refuse every send during the block; reads continue.

        A client that knows the route is answered `NoPermission`. One that asks for it gets no
        writable queue and fails with `BrokerNotExist`.
        """
        before = self._change(_READ_ONLY)
        try:
            yield
        finally:
            self._change(before)

    # The network

    @contextmanager
    def latency(self, seconds: float, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Delay everything that arrives at the broker by `seconds` during the block."""
        with self._fault("latency", seconds=seconds, limit_s=limit_s):
            yield

    @contextmanager
    def dropped_connections(self, *, every: int = 1, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Close all connections now, and a connection instead of each `every`-th answer.

        The request was performed, and its client cannot know.
        """
        with self._fault("dropped_connections", every=every, limit_s=limit_s):
            yield

    @contextmanager
    def partition(self, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Cut the network between clients and broker, name server included, during the block.

        Connections stay open, what is sent in either direction arrives after the block, and the
        broker keeps running.
        """
        with self._fault("partition", limit_s=limit_s):
            yield

    # The disk

    @contextmanager
    def slow_sync(self, seconds: float, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Make each sync of a file take `seconds` longer during the block."""
        with self._fault("slow_sync", seconds=seconds, limit_s=limit_s):
            yield

    @contextmanager
    def failing_sync(self, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Fail each sync of a file during the block.

        A failed sync is final: the broker refuses sends from then on. If one has failed, the
        broker is started again at the end of the block.
        """
        self._ask("begin", "failing_sync", limit_s=limit_s)
        try:
            yield
        finally:
            if self._is_running() and self._ask("end", "failing_sync")["sync_failed"]:
                self._restart()

    @contextmanager
    def full_disk(self, *, limit_s: float = LIMIT_S) -> Iterator[None]:
        """Leave no room on the disk during the block: sends are refused, reads continue.

        As on a disk that is really full, the broker removes its oldest log files of 64 MiB.
        """
        with self._fault("full_disk", limit_s=limit_s):
            yield

    # Inside

    @contextmanager
    def _fault(self, name: str, **settings: object) -> Iterator[None]:
        self._ask("begin", name, **settings)
        try:
            yield
        finally:
            # A broker that was killed or stopped in the block restarts without faults.
            if self._is_running():
                self._ask("end", name)

    def _ask(self, do: str, fault: str, **settings: object) -> dict[str, object]:
        if not self._is_allowed:
            raise EmbeddedBrokerFailed(
                f"fault {fault}: a broker with allowRemote=true has no faults but kill, pause and"
                " refused_sends, because others could be affected"
            )
        request = {"do": do, "fault": fault, **settings}
        return self._running().request(request, _ANSWER_WITHIN_S)

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

    def _is_running(self) -> bool:
        process = self._process()
        return process is not None and process.exit_code is None

    def _running(self) -> BrokerProcess | ForeignProcess:
        process = self._process()
        if process is None or process.exit_code is not None:
            raise EmbeddedBrokerFailed("the broker is not running; call start()")
        return process


class KillPoint:
    """A kill that was requested with `kill_at`."""

    def __init__(self, point: str, process: BrokerProcess | ForeignProcess) -> None:
        self.point = point
        self._process = process

    def __repr__(self) -> str:
        return f"<KillPoint {self.point}, {'killed' if self.was_reached else 'not reached'}>"

    @property
    def was_reached(self) -> bool:
        """Whether the broker was killed."""
        return self._process.exit_code is not None

    def wait(self, timeout_s: float = LIMIT_S) -> None:
        """Wait until the broker is killed; raises `EmbeddedBrokerFailed` if it takes longer."""
        if not self._process.wait(timeout_s):
            raise EmbeddedBrokerFailed(f"the broker did not pass {self.point} in {timeout_s:g} s")


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
