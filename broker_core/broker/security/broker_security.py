"""Security of one broker: TLS of its ports, access control, and its own credentials.

Built from the configuration before anything listens, so that an invalid file stops the start.
"""

from __future__ import annotations

import logging
import ssl
from typing import Final, NamedTuple

from broker_core.access.access_gate import AccessGate
from broker_core.access.account_file import AccountFile
from broker_core.access.accounts import Account, AccountTable
from broker_core.access.broker_rules import BROKER_RULES
from broker_core.access.credentials import Credentials, read_secret_file
from broker_core.access.permissions import Resources
from broker_core.access.request_signing import RequestSigner
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import NoPermission
from broker_core.remoting.client import RemotingClient
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.remoting.tls.context import (
    ClientAuth,
    OptionNames,
    ServerTls,
    TlsMode,
    client_context,
)
from broker_core.remoting.tls.context import server_tls as port_tls
from broker_core.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

_SERVER_NAMES: Final = OptionNames(
    "tls.server.certPath", "tls.server.keyPath", "tls.server.trustCertPath"
)
_CLIENT_NAMES: Final = OptionNames(
    "tls.client.certPath", "tls.client.keyPath", "tls.client.trustCertPath"
)
# Logged rejections per minute; the metrics count all of them.
_LOGGED_PER_MINUTE: Final = 60


def server_tls(config: BrokerConfig) -> ServerTls | None:
    """TLS of the ports for clients; None for plain text only. Reads the files."""
    mode = TlsMode(config.tls_server_mode)
    if mode is TlsMode.DISABLED:
        return None
    password_file = config.tls_server_key_password_file
    password = (
        read_secret_file(password_file, "tls.server.keyPasswordFile") if password_file else ""
    )
    return port_tls(
        config.tls_server_cert,
        config.tls_server_key,
        _SERVER_NAMES,
        allows_plain=mode is TlsMode.PERMISSIVE,
        key_password=password,
        authority=config.tls_server_trust,
        client_auth=ClientAuth(config.tls_server_client_auth),
    )


def inner_context(config: BrokerConfig) -> ssl.SSLContext | None:
    """TLS of this broker's own connections; None for plain text. Reads the files."""
    if not config.tls_client_enable:
        return None
    return client_context(
        _CLIENT_NAMES,
        authority=config.tls_client_trust,
        certificate=config.tls_client_cert,
        key=config.tls_client_key,
    )


def inner_client(config: BrokerConfig, clock: Clock | None = None) -> RemotingClient:
    """Client for name servers and the master: signed and encrypted if configured."""
    context = inner_context(config)
    signer = None
    if config.inner_access_key:
        secret = read_secret_file(config.inner_secret_key_file, "innerSecretKeyFile")
        credentials = Credentials(config.inner_access_key, secret)
        signer = RequestSigner(credentials, clock or SystemClock())
    return RemotingClient(ssl_context=context, sign_request=signer, clock=clock)


class ReplicationTls(NamedTuple):
    """TLS of the replication port and of a slave's connection to it; None for plain text."""

    server: ssl.SSLContext | None = None
    client: ssl.SSLContext | None = None


class BrokerSecurity:
    """`tls` is None for plain text only."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self.tls = server_tls(config)
        self._file = AccountFile(config.access_file) if config.acl_enable else None
        self._accounts = self._file.load() if self._file is not None else AccountTable()
        self._gate: AccessGate | None = None
        self._logged_from = clock.monotonic()
        self._logged_count = 0

    @property
    def replication_tls(self) -> ReplicationTls:
        """TLS of the link between master and slaves, for either side."""
        if not self._config.ha_tls_enable or self.tls is None:
            return ReplicationTls()
        return ReplicationTls(self.tls.context, inner_context(self._config))

    @property
    def refused_count(self) -> int:
        """Number of rejected requests since the start."""
        return self._gate.refused_count if self._gate is not None else 0

    def guarded(self, handler: Handler, resources: Resources) -> Handler:
        """`handler` behind access control, if accounts are configured."""
        if self._file is None:
            return handler
        self._gate = AccessGate(
            handler,
            BROKER_RULES,
            self._accounts,
            self._clock,
            resources=resources,
            is_strict=self._config.acl_strict_signature,
            broker_name=self._config.broker_name,
            on_refusal=self._refused,
        )
        return self._gate

    def needs_account(self, host: str) -> bool:
        """Whether peers of this host need an account."""
        return self._gate is not None and self._gate.needs_account(host)

    def may_publish(self, account: Account | None, topic: str) -> bool:
        """Whether an account may send to a topic; always without accounts."""
        return self._gate is None or self._gate.may_publish(account, topic)

    def start(self) -> None:
        """Watch the account file."""
        if self._file is not None:
            self._file.start(self._accounts_changed)

    async def stop(self) -> None:
        """Stop watching the account file."""
        if self._file is not None:
            await self._file.stop()

    def _accounts_changed(self, accounts: AccountTable) -> None:
        assert self._gate is not None
        self._gate.accounts = accounts

    def _refused(
        self, connection: Connection, command: RemotingCommand, error: NoPermission
    ) -> None:
        now = self._clock.monotonic()
        if now - self._logged_from >= 60:
            self._logged_from, self._logged_count = now, 0
        self._logged_count += 1
        if self._logged_count <= _LOGGED_PER_MINUTE:
            _log.warning("request %d of %s: %s", command.code, connection.peer_text, error)
