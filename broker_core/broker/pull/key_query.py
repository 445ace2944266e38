"""QUERY_MESSAGE: messages by key or unique key within a range of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.access.asking_account import is_administrator
from broker_core.broker.request_fields import (
    optional_flag,
    optional_number,
    required_number,
    required_text,
)
from broker_core.broker.viewed_record import is_for_readers
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import QueryNotFound
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

# Answered to tools that ask for one message by its unique key.
_UNIQUE_COUNT: Final = 32
_COUNT_MAX: Final = 1024
# The answer is one frame.
_SIZE_MAX: Final = 8 << 20


class QueryMessageProcessor:
    """Answers from the index, with at most `index_query_max` messages."""

    def __init__(self, *, store: MessageStore, index_query_max: int) -> None:
        self._store = store
        self._count_max = min(_COUNT_MAX, index_query_max)

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.QUERY_MESSAGE: self._query}

    def _query(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        topic, key = required_text(ext, "topic"), required_text(ext, "key")
        count = optional_number(ext, "maxNum", 32, 1, _COUNT_MAX)
        if optional_flag(ext, "_UNIQUE_KEY_QUERY", False):
            count = _UNIQUE_COUNT
        begin_ms = max(required_number(ext, "beginTimestamp"), 0)
        end_ms = min(max(required_number(ext, "endTimestamp"), 0), I64_MAX)
        body = bytearray()
        newest = 0
        sees_all = is_administrator(connection)
        found, is_complete = self._store.query_some(topic, key, count, begin_ms, end_ms)
        is_complete &= len(found) < min(count, self._count_max)
        for record in found:
            if not (sees_all or is_for_readers(record)):
                continue
            stored = self._store.record_at(record.physical_offset)
            if stored is None or len(body) + len(stored) > _SIZE_MAX:
                is_complete = False
                break
            body += stored
            newest = max(newest, record.store_timestamp)
        if not body and is_complete:
            raise QueryNotFound(ResponseCode.QUERY_NOT_FOUND, f"no message of {topic} has this key")
        if not body:
            return command.reply(
                ResponseCode.QUERY_NOT_FOUND,
                f"no message of {topic} among those that were looked at: too many have keys of "
                "the same hash",
                {"isComplete": "false"},
            )
        fields = {
            # Only our broker says so; Apache's leaves clients to guess.
            "isComplete": "true" if is_complete else "false",
            "indexLastUpdateTimestamp": str(newest),
            "indexLastUpdatePhyoffset": str(self._store.dispatched_position),
        }
        return command.reply(ResponseCode.SUCCESS, None, fields, bytes(body))
