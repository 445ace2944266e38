"""Roles of stopped brokers as their stores have them, and which of several is the master.

A promotion is durable in the store before the new master accepts a message. A cluster that is
started again on the same directories therefore follows the stores, not its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.replication.epoch_file import load_history
from broker_core.replication.log_epochs import EpochHistory, LastRole
from broker_core.storage.files.posix_file_system import PosixFileSystem


def stored_history(store_root: str) -> EpochHistory:
    """The history of the last run on a store. Raises `StoreUnusable` when it is damaged."""
    file_system = PosixFileSystem(store_root)
    try:
        return load_history(file_system)
    finally:
        file_system.close()


def kept_master(stores: Mapping[int, str]) -> int:
    """Which of the stores of one broker name is its master's: 0 unless another was promoted.

    Raises `StoreUnusable` when a file is damaged.
    """
    newest, master = 0, 0
    for number, store_root in stores.items():
        history = stored_history(store_root)
        # A replaced master that was not started since still has the role of a master.
        if history.role is LastRole.MASTER and history.seen > newest:
            newest, master = history.seen, number
    return master


def member_id(number: int, master: int) -> int:
    """The brokerId of a member: its number, with the first and the promoted one swapped."""
    return {master: 0, 0: master}.get(number, number)
