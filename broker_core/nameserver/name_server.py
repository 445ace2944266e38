"""The name server: connects tables, handlers, a listening socket and the expiry scan.

Everything runs on the event loop that `start` was called on. Owns the timer of the scan.
"""

from __future__ import annotations

import asyncio
import logging

from broker_core.access.access_gate import AccessGate
from broker_core.access.account_file import AccountFile
from broker_core.access.accounts import AccountTable
from broker_core.access.name_server_rules import NAME_SERVER_RULES
from broker_core.config import RemotingLimits
from broker_core.nameserver.kv_config import KvConfig
from broker_core.nameserver.request_handlers import RequestHandlers
from broker_core.nameserver.route_table import RouteTable
from broker_core.nameserver.settings import NameServerSettings
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.remoting.server import RemotingServer
from broker_core.remoting.tls.context import ServerTls
from broker_core.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)


class NameServer:
    """Answers route requests. `table` may be read on the event loop."""

    def __init__(
        self,
        settings: NameServerSettings | None = None,
        *,
        clock: Clock | None = None,
        kv: KvConfig | None = None,
        remoting_limits: RemotingLimits | None = None,
        tls: ServerTls | None = None,
        access_file: str = "",
        strict_signatures: bool = False,
    ) -> None:
        self._settings = settings or NameServerSettings()
        self._clock: Clock = clock or SystemClock()
        self.table = RouteTable(self._settings.limits)
        handlers = RequestHandlers(
            self.table, kv or KvConfig(self._settings.limits), self._settings, self._clock
        )
        self.codes = handlers.codes
        self._access: AccountFile | None = None
        serving: Handler = handlers
        if access_file:
            self._access = AccountFile(access_file)
            serving = self._gate = AccessGate(
                handlers,
                NAME_SERVER_RULES,
                self._access.load(),
                self._clock,
                is_strict=strict_signatures,
            )
        self._server = RemotingServer(
            serving, remoting_limits, tls, self._clock, needs_account=self._needs_account
        )
        self._timer: asyncio.TimerHandle | None = None
        self._scanned_ms = 0.0

    @property
    def server(self) -> RemotingServer:
        """Its connections with clients and brokers."""
        return self._server

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The addresses of the listening sockets."""
        return self._server.addresses

    async def start(self, host: str = "127.0.0.1", port: int = 9876) -> int:
        """Listen; returns the bound port, which the system chose for 0."""
        bound = await self._server.start(host, port)
        if self._access is not None:
            self._access.start(self._accounts_changed)
        self._scanned_ms = self._now_ms()
        self._schedule_scan()
        return bound

    async def stop(self, grace_ms: int = 1_000) -> None:
        """Stop accepting, answer what is in flight, close every connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._access is not None:
            await self._access.stop()
        await self._server.stop(grace_ms)

    def scan(self) -> None:
        """Drop the brokers that have been silent for too long."""
        now_ms = self._now_ms()
        late_ms = now_ms - self._scanned_ms - 2 * self._settings.scan_interval_ms
        self._scanned_ms = now_ms
        if late_ms > 0:
            # This process was paused, so heartbeats may wait unread in the sockets.
            _log.warning("the scan for silent brokers is %d ms late; skipping one", late_ms)
            return
        for identity, connection in self.table.expire(now_ms):
            _log.warning("broker %s at %s is gone: no heartbeat", identity.name, identity.address)
            # A broker that is alive after all connects again and registers everything.
            if isinstance(connection, Connection):
                connection.close()

    def _needs_account(self, host: str) -> bool:
        return self._access is not None and self._gate.needs_account(host)

    def _accounts_changed(self, accounts: AccountTable) -> None:
        self._gate.accounts = accounts

    def _schedule_scan(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._settings.scan_interval_ms / 1_000, self._tick)

    def _tick(self) -> None:
        self._schedule_scan()
        self.scan()

    def _now_ms(self) -> float:
        return self._clock.monotonic() * 1_000
