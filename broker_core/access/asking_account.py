"""The account of the current request, for handlers whose answer depends on it.

A connection may carry requests of several accounts, so a handler must read it before it awaits.
"""

from __future__ import annotations

from typing import Final

from broker_core.access.accounts import TRUSTED_PEER, Account
from broker_core.remoting.connection import Connection

_ACCOUNT: Final = "access.account"


def note_account(connection: Connection, account: Account) -> None:
    """Set the account of the current request; called by the gate."""
    connection.attributes[_ACCOUNT] = account


def asking_account(connection: Connection) -> Account | None:
    """The account of the current request; None where there are no accounts."""
    found = connection.attributes.get(_ACCOUNT)
    return found if isinstance(found, Account) else None


def account_name(connection: Connection) -> str:
    """The access key of `asking_account`; "" without accounts and for peers that need none."""
    account = asking_account(connection)
    return "" if account is None or account is TRUSTED_PEER else account.access_key


def is_administrator(connection: Connection) -> bool:
    """Whether an administrator sent the request; False without accounts."""
    account = asking_account(connection)
    return account is not None and account.is_admin
