"""Access to records by log position, which any client can guess.

The log also holds records that consumers must not see: half messages, delayed messages and the
broker's own records. Only administrators can read those.
"""

from __future__ import annotations

from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.codec.records.record_layout import (
    TRANSACTION_BITS,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from broker_core.codec.wire.system_topics import refuses_pulls
from broker_core.store.message_store import MessageStore

_UNCOMMITTED = (TRANSACTION_PREPARED, TRANSACTION_ROLLBACK)


def is_for_readers(record: MessageRecord) -> bool:
    """Whether consumers of the record's topic may see it."""
    return (
        not refuses_pulls(record.topic) and record.sys_flag & TRANSACTION_BITS not in _UNCOMMITTED
    )


def viewed_record(
    store: MessageStore, position: int, *, is_administrator: bool = False
) -> tuple[bytes, MessageRecord] | None:
    """The record at a position, as stored and decoded; None if the caller may not see one there.

    Raises `CorruptRecord` for a position inside the log where no record begins.
    """
    data = store.record_at(position)
    if data is None:
        return None
    record = decode_record(data)
    return (data, record) if is_administrator or is_for_readers(record) else None
