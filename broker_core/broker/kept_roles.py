"""What the stores of stopped brokers say about their roles, and who of several is the master.

A promotion is durable in the store before the new master takes a message, whoever asked for it. So
a cluster that is planned anew on the same directories goes by that, and not by its plan.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.replication.epoch_file import load_history
from broker_core.replication.log_epochs import EpochHistory, LastRole
from broker_core.storage.posix_file_system import PosixFileSystem


def stored_history(store_root: str) -> EpochHistory:
    """What the last run on a store wrote; raises `StoreUnusable` when that is damaged."""
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
        # An old master that was not started since then calls itself one, too.
        if history.role is LastRole.MASTER and history.seen > newest:
            newest, master = history.seen, number
    return master


def member_id(number: int, master: int) -> int:
    """The brokerId of a member: its number, but the first one and the promoted one have swapped."""
    return {master: 0, 0: master}.get(number, number)
