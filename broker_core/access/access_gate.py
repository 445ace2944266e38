"""Authenticates and authorises requests before the handlers of a server.

Deny by default. A request passes when its peer is on the global white list, or when it is signed by
an account that has the permissions in the rule of its code. An unknown access key and a wrong
signature get the same answer after the same work.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from broker_core.access.accounts import PUB, TRUSTED_PEER, Account, AccountTable
from broker_core.access.asking_account import note_account
from broker_core.access.broker_names import BrokerNames
from broker_core.access.permissions import (
    Resources,
    Role,
    Rule,
    check_permission,
    has_permission,
    refused,
    role_of,
    topic_need,
)
from broker_core.access.strict_sessions import StrictSessions
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.request_signature import (
    ACCESS_KEY,
    SIGNATURE,
    STRICT_AUTH,
    has_rocketmq_signature,
    parse_strict_auth,
    same_text,
    strict_auth,
)
from broker_core.errors import NoPermission
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, Result
from broker_core.runtime.clock import Clock
from broker_core.runtime.peer_host import is_loopback_host

# One text for all cases, so that guessing reveals nothing.
_NOT_SIGNED: Final = "the access key or the signature is missing or wrong"
# Used for unknown access keys, so that timing does not reveal which keys exist.
_UNKNOWN: Final = Account("", os.urandom(32))

OnRefusal = Callable[[Connection, RemotingCommand, NoPermission], None]
"""Called for each refusal with the peer, the request and the reason."""


class NoResources:
    """`Resources` of a server without a log or sinks: requests name topics and groups directly."""

    def topic_at(self, position: int) -> str | None:
        return None

    def transaction_topic_at(self, position: int) -> str | None:
        return None

    def sink_of(self, staging_id: str) -> str | None:
        return None

    def topics_of(self, staging_id: str) -> Iterable[str]:
        return ()

    def is_system_topic(self, topic: str) -> bool:
        return False

    def other_retry_owners(self, group: str, topic: str) -> Iterable[tuple[str, str]]:
        return ()

    def retry_owners(self, topic: str) -> Iterable[tuple[str, str]]:
        return ()

    def popped_by(self, position: int) -> Iterable[tuple[str, str]]:
        return ()


class AccessGate:
    """The handler of a server that has accounts; `accounts` may be replaced while it serves."""

    def __init__(
        self,
        handler: Handler,
        rules: Mapping[int, Rule],
        accounts: AccountTable,
        clock: Clock,
        *,
        resources: Resources | None = None,
        is_strict: bool = False,
        broker_name: str = "",
        on_refusal: OnRefusal | None = None,
    ) -> None:
        """`broker_name` is that of the broker behind the gate; empty for a name server."""
        self._handler = handler
        self._rules = rules
        self._resources = resources or NoResources()
        self._is_strict = is_strict
        self._broker_names = BrokerNames(broker_name)
        self._sessions = StrictSessions(clock)
        self.accounts = accounts
        # Number of refused requests, for the metrics.
        self.refused_count = 0
        self._on_refusal = on_refusal

    def __call__(
        self, connection: Connection, command: RemotingCommand
    ) -> Result | Awaitable[Result]:
        """Call the handler for an allowed request; raise `NoPermission` for any other."""
        try:
            self._check(connection, command)
        except NoPermission as error:
            self.refused_count += 1
            if self._on_refusal is not None:
                self._on_refusal(connection, command, error)
            raise
        return self._handler(connection, command)

    def needs_account(self, host: str) -> bool:
        """Whether peers of this host must authenticate."""
        return not self.accounts.is_trusted(host)

    def may_publish(self, account: Account | None, topic: str) -> bool:
        """Whether an account may send to a topic, by its current permissions."""
        if account is None:
            return False
        if account is not TRUSTED_PEER:
            account = self.accounts.accounts.get(account.access_key)
        return account is not None and has_permission(
            account, topic_need(topic, PUB), self._resources
        )

    def _check(self, connection: Connection, command: RemotingCommand) -> None:
        host = connection.peer[0]
        rule = self._rules.get(command.code)
        if self.accounts.is_trusted(host):
            account = TRUSTED_PEER
        else:
            account = self._account(connection, command, rule)
            if connection.load.is_unauthenticated:
                connection.recognised()
        if rule is None:
            raise refused(f"request {command.code} has no permission rule")
        check_permission(account, rule, command, self._resources)
        if rule.role is Role.BROKER and role_of(account) is Role.BROKER:
            self._broker_names.check(account, command, self.accounts)
        note_account(connection, account)

    def _account(
        self, connection: Connection, command: RemotingCommand, rule: Rule | None
    ) -> Account:
        """The account that signed the request."""
        ext = command.ext
        account = self.accounts.accounts.get(ext.get(ACCESS_KEY, ""), _UNKNOWN)
        if account is not _UNKNOWN and account.is_trusted(connection.peer[0]):
            return account
        if STRICT_AUTH in ext:
            self._check_strict(connection, command, account)
            return account
        is_signed = has_rocketmq_signature(account.secret, ext, command.body)
        if not is_signed or account is _UNKNOWN:
            raise refused(_NOT_SIGNED)
        if self._is_strict:
            raise refused(f"this server requires the signature {STRICT_AUTH}, not only {SIGNATURE}")
        if rule is not None and rule.role > Role.ACCOUNT and not _is_private(connection):
            raise refused(
                "on a connection that others can read, administration needs TLS or the signature "
                f"{STRICT_AUTH}"
            )
        return account

    def _check_strict(
        self, connection: Connection, command: RemotingCommand, account: Account
    ) -> None:
        given = command.ext[STRICT_AUTH]
        stamp = parse_strict_auth(given)
        if stamp is None:
            raise refused(_NOT_SIGNED)
        wanted = strict_auth(
            account.secret,
            command.code,
            command.opaque,
            command.flag,
            command.ext,
            command.body,
            stamp,
        )
        if not same_text(wanted, given) or account is _UNKNOWN:
            raise refused(_NOT_SIGNED)
        problem = self._sessions.problem(connection, stamp, account.access_key)
        if problem:
            raise refused(f"the request is a copy or its clock is wrong: {problem}")


def _is_private(connection: Connection) -> bool:
    return connection.is_encrypted or is_loopback_host(connection.peer[0])
