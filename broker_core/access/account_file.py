"""The account file: read at the start and reloaded when it changes.

If a changed file is unreadable, not private or invalid, the old accounts stay in use and the error
is logged. A server does not start with such a file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker_core.access.accounts import AccountTable, parse_accounts
from broker_core.access.credentials import FileStamp, file_stamp, read_private_file
from broker_core.errors import InvalidArgument, InvalidConfig, MalformedJson, RmqError
from broker_core.runtime.repeated_check import RepeatedCheck

_log = logging.getLogger(__name__)

CHECK_INTERVAL_S: Final = 1.0
OPTION: Final = "accessFile"
# Accounts that one log line lists.
_NAMED_MAX: Final = 10


def read_accounts(path: str) -> AccountTable:
    """The accounts of a file that only its owner can read. Raises `InvalidConfig`."""
    data = read_private_file(path, OPTION)
    try:
        return parse_accounts(data)
    except MalformedJson:
        # The error's text may quote secrets.
        raise InvalidConfig(OPTION, path, "a JSON file: it cannot be parsed") from None
    except InvalidArgument as error:
        raise InvalidConfig(OPTION, path, str(error)) from None


class AccountFile(RepeatedCheck):
    """Reloads the accounts; `start` it on the event loop."""

    def __init__(self, path: str) -> None:
        super().__init__(CHECK_INTERVAL_S)
        self._path = path
        self._stamp: FileStamp | None = None
        self._changed: Callable[[AccountTable], None] | None = None

    def load(self) -> AccountTable:
        """Read the file for the first time."""
        self._stamp = file_stamp(self._path)
        accounts = read_accounts(self._path)
        _warn_of_unnamed_brokers(accounts)
        return accounts

    def start(self, changed: Callable[[AccountTable], None]) -> None:
        """Call `changed` with the new accounts whenever the file changes."""
        self._changed = changed
        self.begin()

    async def check(self) -> bool:
        """Check once; returns whether there were new accounts."""
        stamp = await asyncio.to_thread(file_stamp, self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            accounts = await asyncio.to_thread(read_accounts, self._path)
        except RmqError as error:
            _log.error("the account file was not reloaded, the old accounts stay in use: %s", error)
            return False
        _log.info("read %d accounts from %s", len(accounts.accounts), self._path)
        _warn_of_unnamed_brokers(accounts)
        if self._changed is not None:
            self._changed(accounts)
        return True


def _warn_of_unnamed_brokers(accounts: AccountTable) -> None:
    """Until it has used a name, such an account may take that of any broker without one."""
    keys = [
        account.access_key
        for account in accounts.accounts.values()
        if account.is_broker and not account.broker_name
    ]
    if keys:
        more = f" and {len(keys) - _NAMED_MAX} more" if len(keys) > _NAMED_MAX else ""
        _log.warning(
            "accounts of brokers without brokerName: %s%s. Each of them may register any broker "
            "name that is not the brokerName of another account; set brokerName in the access file",
            ", ".join(keys[:_NAMED_MAX]),
            more,
        )
