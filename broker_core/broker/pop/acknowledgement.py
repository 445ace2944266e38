"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME for popped messages.

Acknowledging twice, or after the message was moved to the retry topic, is harmless. It is an error
if another consumer has popped the message meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from broker_core.broker.pop.ledger import AckOutcome
from broker_core.broker.pop.ledger_table import PopLedgers
from broker_core.broker.pop.processor import INVISIBLE_MS_MAX
from broker_core.broker.request_fields import required_number, required_text
from broker_core.broker.tables.offset_table import OffsetKey
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.pop_handle import (
    ORDER_MARK,
    PopHandle,
    group_mark,
    parse_batch_acks,
    parse_handle,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore


class _Receipt(NamedTuple):
    key: OffsetKey
    offset: int
    mark: int
    pop_time_ms: int


class PopAckProcessor:
    """Event loop only. `changed()` reports a new deadline, `freed(group, topic)` that waiting pops
    may find messages.
    """

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        ledgers: PopLedgers,
        changed: Callable[[], object],
        freed: Callable[[str, str], object],
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._ledgers = ledgers
        self._changed = changed
        self._freed = freed

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
        }

    def ack(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Acknowledge one message."""
        receipt, _handle = self._receipt(command.ext)
        if self._acknowledge(receipt) is AckOutcome.STALE:
            raise _stale(receipt)
        return command.reply()

    def batch_ack(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Acknowledge messages; those that another consumer has by now are skipped."""
        broker_name, acks = parse_batch_acks(command.body)
        if broker_name and broker_name != self._broker_name:
            raise InvalidArgument(
                f"the receipts are from broker {broker_name[:100]!r}: send them there"
            )
        receipts = []
        for ack in acks:
            key = (ack.group, ack.topic, ack.queue_id)
            for offset in ack.offsets:
                receipt = _Receipt(key, offset, ack.mark, ack.pop_time_ms)
                self._check(receipt)
                receipts.append(receipt)
        for receipt in receipts:
            self._acknowledge(receipt)
        return command.reply()

    def change(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Set the invisible time, counted from now; the answer has a new handle."""
        receipt, handle = self._receipt(command.ext)
        invisible_ms = required_number(command.ext, "invisibleTime", 0, I64_MAX)
        invisible_ms = min(invisible_ms, INVISIBLE_MS_MAX)
        ledger = self._ledgers.known(receipt.key)
        lease = None
        if ledger is not None:
            lease = self._ledgers.change(
                receipt.key, ledger, receipt.offset, receipt.pop_time_ms, invisible_ms
            )
        if lease is None:
            raise _stale(receipt)
        self._changed()
        return command.reply(
            ext={
                "popTime": str(lease.pop_time_ms),
                "invisibleTime": str(invisible_ms),
                "reviveQid": str(handle.mark),
            }
        )

    def _receipt(self, ext: Mapping[str, str]) -> tuple[_Receipt, PopHandle]:
        key = (
            required_text(ext, "consumerGroup"),
            required_text(ext, "topic"),
            required_number(ext, "queueId", 0, QUEUE_ID_MAX),
        )
        offset = required_number(ext, "offset", 0)
        handle = parse_handle(required_text(ext, "extraInfo"))
        if handle.broker_name != self._broker_name:
            raise InvalidArgument(
                f"the receipt is from broker {handle.broker_name[:100]!r}: send it there"
            )
        if (handle.queue_id, handle.offset) != (key[2], offset):
            raise InvalidArgument(
                f"the receipt is for offset {handle.offset} of queue {handle.queue_id}, not for "
                f"{offset} of {key[2]}"
            )
        receipt = _Receipt(key, offset, handle.mark, handle.pop_time_ms)
        self._check(receipt)
        return receipt, handle

    def _check(self, receipt: _Receipt) -> None:
        group, topic, queue_id = receipt.key
        config = self._topics.required(topic)
        # Removed queues may still have messages in flight.
        end = self._store.offsets(topic, queue_id)[1]
        if queue_id >= max(config.read_queue_count, config.write_queue_count) and not end:
            raise InvalidArgument(f"topic {topic} has no queue {queue_id}")
        if receipt.offset >= end:
            raise RemoteError.for_code(
                ResponseCode.NO_MESSAGE,
                f"queue {queue_id} of {topic} ends at {end}, before {receipt.offset}",
            )
        if receipt.mark not in (group_mark(group), ORDER_MARK):
            raise InvalidArgument(f"the receipt does not belong to group {group:.130}")

    def _acknowledge(self, receipt: _Receipt) -> AckOutcome:
        key = receipt.key
        is_order = receipt.mark == ORDER_MARK
        ledger = self._ledgers.known(key)
        # In orderly mode only messages in flight can be acknowledged.
        if ledger is None or (is_order and receipt.offset >= ledger.next_offset):
            return AckOutcome.STALE
        was_full = not self._ledgers.room(ledger)
        outcome = self._ledgers.acknowledge(key, ledger, receipt.offset, receipt.pop_time_ms)
        if outcome is AckOutcome.DONE and (was_full or (is_order and not ledger.in_flight_count)):
            self._freed(key[0], key[1])
        return outcome


def _stale(receipt: _Receipt) -> RemoteError:
    _, topic, queue_id = receipt.key
    return RemoteError.for_code(
        ResponseCode.NO_MESSAGE,
        f"the receipt for offset {receipt.offset} in queue {queue_id} of {topic} is no longer "
        "valid: the message was delivered again, or its invisible time was changed",
    )
