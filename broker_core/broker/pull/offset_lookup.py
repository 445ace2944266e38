"""Look-ups: ends of queues, offsets by time, messages by position."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.access.asking_account import is_administrator
from broker_core.broker.request_fields import required_number, required_text
from broker_core.broker.viewed_record import viewed_record
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import CorruptRecord, InvalidArgument
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore


class OffsetLookupProcessor:
    """Answers from `store`; an unknown queue is an empty one."""

    def __init__(self, *, store: MessageStore) -> None:
        self._store = store

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._by_time,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_time,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
        }

    def _max_offset(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        offset = self._store.offsets(*_queue_of(command))[1]
        return command.reply(ext={"offset": str(offset)})

    def _min_offset(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        offset = self._store.offsets(*_queue_of(command))[0]
        return command.reply(ext={"offset": str(offset)})

    def _by_time(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic, queue_id = _queue_of(command)
        time_ms = max(required_number(command.ext, "timestamp"), 0)
        boundary = (command.ext.get("boundaryType") or "LOWER").upper()
        if boundary == "LOWER":
            offset = self._store.offset_by_time(topic, queue_id, time_ms)
        elif boundary == "UPPER":
            # The last message at or before this time.
            newer = self._store.offset_by_time(topic, queue_id, min(time_ms + 1, I64_MAX))
            offset = max(newer - 1, self._store.offsets(topic, queue_id)[0])
        else:
            raise InvalidArgument(f"boundaryType is {boundary[:60]!r}: give LOWER or UPPER")
        return command.reply(ext={"offset": str(offset)})

    def _earliest_time(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        topic, queue_id = _queue_of(command)
        low, high = self._store.offsets(topic, queue_id)
        found = self._store.store_time(topic, queue_id, low) if low < high else None
        return command.reply(ext={"timestamp": str(-1 if found is None else found)})

    def _view(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        position = required_number(command.ext, "offset", 0, I64_MAX)
        try:
            found = viewed_record(
                self._store, position, is_administrator=is_administrator(connection)
            )
        except CorruptRecord:
            # The client may have made the position up; the log need not be damaged.
            found = None
        if found is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}"
            )
        return command.reply(body=found[0])


def _queue_of(command: RemotingCommand) -> tuple[str, int]:
    topic = required_text(command.ext, "topic")
    return topic, required_number(command.ext, "queueId", 0, QUEUE_ID_MAX)
