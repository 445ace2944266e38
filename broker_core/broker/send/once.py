"""SEND_ONCE: stores a message unless its topic has one with the same id (`UNIQ_KEY`).

The index answers for everything that is dispatched, also from earlier runs of the broker, and this
table for the few messages that were appended since. Look-up and append are one step of the event
loop, so two requests with one id never both append.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final, NamedTuple

from broker_core.broker.client_address import born_host
from broker_core.broker.send.plan import SendPlanner
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_properties import decode_properties
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.send_request import SHORT_NAMES, SendRequest, parse_send_request
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import InvalidArgument, SystemBusy, TopicNotExist
from broker_core.protocol_codes import PutStatus, RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

# A broker acts on these: the message is stored in another topic, or more than once.
_ACTED_ON: Final = (names.DELAY, names.TRANSACTION_PREPARED)
_TIMER_PREFIX: Final = "TIMER_"
# The index compares ids, so more than one message is found only if producers sent copies.
_FOUND_MAX: Final = 32


class _Stored(NamedTuple):
    queue_id: int
    queue_offset: int
    message_id: str
    result: PutResult


class SendOnceProcessor:
    """Event loop only. The store must keep an index."""

    def __init__(
        self, *, store: MessageStore, topics: TopicTable, planner: SendPlanner, stats: BrokerStats
    ) -> None:
        self._store = store
        self._topics = topics
        self._planner = planner
        self._stats = stats
        self._random = Random()
        # (topic, id) of what the index may lack, oldest first.
        self._recent: dict[tuple[str, str], _Stored] = {}
        # Below this position the index must be complete before it can answer.
        self._first_position = store.log_range[1]

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.SEND_ONCE: self._send}

    def _send(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        request = parse_send_request(command.ext, SHORT_NAMES)
        unique = _checked_id(request)
        if self._topics.find(request.topic) is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {request.topic} does not exist, and SEND_ONCE creates none",
            )
        known = self._find(request.topic, unique)
        is_repeat = known is not None
        if known is None:
            made = self._append(connection, command, request)
            if isinstance(made, RemotingCommand):
                return made
            known = self._recent[request.topic, unique] = made
        answer = partial(self._acknowledged, connection, command, known, is_repeat)
        self._store.when_acknowledged(known.result, answer)
        return None

    def _find(self, topic: str, unique: str) -> _Stored | None:
        """The message with this id. Raises if the index cannot answer yet."""
        found = self._store.query(topic, unique, _FOUND_MAX)
        if self._store.dispatched_position < self._first_position:
            raise SystemBusy(
                ResponseCode.SYSTEM_BUSY, "the index does not have the end of the log yet"
            )
        self._forget_indexed()
        recent = self._recent.get((topic, unique))
        if recent is not None:
            return recent
        for record in found:
            if record.properties.get(names.UNIQ_KEY) != unique:
                # It has the id as a key.
                continue
            queue_id, offset = record.queue_id, record.queue_offset
            units = self._store.units(topic, queue_id, offset, 1)
            # The index keeps messages of a topic that was deleted.
            if units and units[0][0] == record.physical_offset:
                position, size, _ = units[0]
                result = PutResult(PutStatus.PUT_OK, end_position=position + size)
                return _Stored(queue_id, offset, record.message_id, result)
        return None

    def _forget_indexed(self) -> None:
        dispatched = self._store.dispatched_position
        while self._recent:
            oldest = next(iter(self._recent))
            if self._recent[oldest].result.end_position > dispatched:
                break
            del self._recent[oldest]

    def _append(
        self, connection: Connection, command: RemotingCommand, request: SendRequest
    ) -> _Stored | RemotingCommand:
        """The answer if nothing is stored."""
        plan = self._planner.plan(request, command, self._random)
        [result] = plan.append(self._store, born_host(connection))
        if result.status is not PutStatus.PUT_OK:
            return command.reply(result.status.response_code, result.remark)
        self._stats.put(request.topic, 1, result.end_position - result.position)
        return _Stored(
            plan.answered_queue_id, result.queue_offset, self._store.message_ids(result), result
        )

    def _acknowledged(
        self,
        connection: Connection,
        command: RemotingCommand,
        stored: _Stored,
        is_repeat: bool,
        status: PutStatus,
    ) -> None:
        if status is not PutStatus.PUT_OK:
            text = f"not stored safely: {status.name}"
            connection.send(command.reply(status.response_code, text))
            return
        answer = partial(self._answer, connection, command, stored, is_repeat)
        # A power cut must not take it either: the reader goes on behind the original.
        self._store.when_on_disk(stored.result, answer)

    def _answer(
        self,
        connection: Connection,
        command: RemotingCommand,
        stored: _Stored,
        is_repeat: bool,
        failure: BaseException | None,
    ) -> None:
        if failure is not None:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            connection.send(command.reply(code, f"not stored safely: {failure}"))
            return
        fields = {
            "msgId": stored.message_id,
            "queueId": str(stored.queue_id),
            "queueOffset": str(stored.queue_offset),
            "repeat": "true" if is_repeat else "false",
        }
        connection.send(command.reply(ResponseCode.SUCCESS, None, fields))


def _checked_id(request: SendRequest) -> str:
    properties = decode_properties(request.properties.encode())
    unique = properties.get(names.UNIQ_KEY, "")
    if not unique:
        raise InvalidArgument("SEND_ONCE needs the property UNIQ_KEY")
    refused = [name for name in properties if name in _ACTED_ON or name.startswith(_TIMER_PREFIX)]
    if refused or request.is_batch or request.topic.startswith(RETRY_TOPIC_PREFIX):
        raise InvalidArgument(
            f"SEND_ONCE takes single messages, not {refused[0]}"
            if refused
            else "SEND_ONCE takes single messages, no batches and none of a retry topic"
        )
    return unique
