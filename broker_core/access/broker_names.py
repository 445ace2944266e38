"""Which broker names the account of a broker may use.

An account with `brokerName` may use only that name, and accounts without one may not use it. On a
name server, an account without `brokerName` is bound to the first name that it uses, until the
server stops. `brokerName` `*` allows every name.
"""

from __future__ import annotations

import logging
from collections.abc import Set

from broker_core.access.accounts import ANY_BROKER, Account, AccountTable
from broker_core.access.permissions import refused
from broker_core.codec.wire.bodies.route_data import decode_topic_route
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import broker_name_problem
from broker_core.errors import NoPermission
from broker_core.protocol_codes import RequestCode

_log = logging.getLogger(__name__)


class BrokerNames:
    """Checks requests that need the role of a broker."""

    def __init__(self, own_name: str = "") -> None:
        """`own_name` is that of the broker that is asked; empty for a name server."""
        self._own_name = own_name
        self._table: AccountTable | None = None
        self._reserved: Set[str] = frozenset()
        # By access key, and the reverse: at most one name per account of the file.
        self._bound: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def check(self, account: Account, command: RemotingCommand, table: AccountTable) -> None:
        """Raise `NoPermission` unless the account may act for every broker that is named.

        `account` has the role of a broker and is no administrator; `table` has all accounts.
        """
        if account.broker_name == ANY_BROKER:
            return
        if table is not self._table:
            self._accounts_changed(table)
        names = _named_brokers(command)
        if not names and account.broker_name and _is_about_routes(command):
            names = {""}
        if self._own_name:
            # Slaves ask their master, which has their name.
            if not account.broker_name and self._own_name not in self._reserved:
                return
            names = names | {self._own_name}
        for name in names:
            if account.broker_name:
                if name != account.broker_name:
                    raise _not_its_own(account.access_key, account.broker_name, name, command)
            else:
                self._check_unnamed(account.access_key, name, command)

    def _check_unnamed(self, key: str, name: str, command: RemotingCommand) -> None:
        bound = self._bound.get(key)
        if bound == name:
            return
        if bound is not None:
            raise _not_its_own(key, bound, name, command)
        problem = broker_name_problem(name)
        if problem is not None:
            raise refused(f"brokerName {problem}, request {command.code}")
        if name in self._reserved or name in self._owners:
            raise refused(
                f"account {key} has no brokerName, and broker {name!r:.140} is another account's: "
                f"set brokerName of this account, request {command.code}"
            )
        self._bound[key] = name
        self._owners[name] = key
        _log.warning(
            "account %s has no brokerName: bound to %r until this server stops; set brokerName in "
            'the access file ("%s" allows every name)',
            key,
            name,
            ANY_BROKER,
        )

    def _accounts_changed(self, table: AccountTable) -> None:
        """Drop the bindings of accounts that are gone or name their broker now."""
        self._table = table
        accounts = table.accounts
        self._reserved = {account.broker_name for account in accounts.values()} - {"", ANY_BROKER}
        for key, name in tuple(self._bound.items()):
            account = accounts.get(key)
            is_unnamed = account is not None and account.is_broker and not account.broker_name
            if not is_unnamed or name in self._reserved:
                del self._bound[key]
                del self._owners[name]


def _named_brokers(command: RemotingCommand) -> Set[str]:
    if _is_about_routes(command):
        body = command.body
        queues = decode_topic_route(body).queues if len(body) else ()
        return {queue.broker_name for queue in queues}
    name = command.ext.get("brokerName")
    return frozenset() if name is None else {name}


def _is_about_routes(command: RemotingCommand) -> bool:
    """Whether the brokers are named in the body."""
    return command.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV


def _not_its_own(key: str, own: str, name: str, command: RemotingCommand) -> NoPermission:
    return refused(
        f"account {key} is that of broker {own!r:.140}, not of {name!r:.140}, "
        f"request {command.code}"
    )
