"""The account of the current request."""

from __future__ import annotations

from broker_core.access.accounts import TRUSTED_PEER, Account
from broker_core.access.asking_account import (
    account_name,
    asking_account,
    is_administrator,
    note_account,
)
from tests.broker.broker_tables import OpenConnection

SECRET = "a secret of enough characters"


def test_without_accounts() -> None:
    connection = OpenConnection()
    assert asking_account(connection) is None  # type: ignore[arg-type]
    assert account_name(connection) == ""  # type: ignore[arg-type]
    assert not is_administrator(connection)  # type: ignore[arg-type]


def test_the_account_of_the_last_request_counts() -> None:
    connection = OpenConnection()
    reader, admin = Account("reader", SECRET), Account("admin", SECRET, is_admin=True)
    note_account(connection, reader)  # type: ignore[arg-type]
    assert account_name(connection) == "reader"  # type: ignore[arg-type]
    assert not is_administrator(connection)  # type: ignore[arg-type]
    note_account(connection, admin)  # type: ignore[arg-type]
    assert asking_account(connection) is admin  # type: ignore[arg-type]
    assert is_administrator(connection)  # type: ignore[arg-type]


def test_a_peer_that_needs_no_account_has_no_name() -> None:
    connection = OpenConnection()
    note_account(connection, TRUSTED_PEER)  # type: ignore[arg-type]
    assert account_name(connection) == ""  # type: ignore[arg-type]
