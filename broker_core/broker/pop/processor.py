"""POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO.

The broker keeps the progress of a group and delivers each message to one consumer at a time, for
its invisible time. A pop that finds nothing is held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from broker_core.broker.pop.pending import PendingPops, Place
from broker_core.broker.pop.reads import PopAsk, PopBatch, PopReads
from broker_core.broker.pull.processor import SUSPEND_MS_MAX, PullMessageProcessor
from broker_core.broker.request_fields import (
    optional_flag,
    optional_number,
    required_number,
    required_text,
)
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.bodies.subscription_data import ALL_MESSAGES, TAG
from broker_core.codec.wire.pop_handle import span_fields
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import InvalidArgument, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, failure_reply

# Apache's brokers reject more at once.
COUNT_MAX: Final = 32
# Longer than any retention; the answer has the applied time.
INVISIBLE_MS_MAX: Final = 7 * 86_400_000
ATTEMPT_ID_SIZE_MAX: Final = 255
_FROM_END: Final = 1


class PopMessageProcessor:
    """Event loop only. `taken()` reports a new deadline."""

    def __init__(
        self,
        *,
        reads: PopReads,
        pulls: PullMessageProcessor,
        pending: PendingPops,
        stats: BrokerStats,
        size_max: int,
        taken: Callable[[], object],
    ) -> None:
        self._reads = reads
        self._pulls = pulls
        self._pending = pending
        self._stats = stats
        self._size_max = size_max
        self._taken = taken

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self._pulls.with_group(self.pop),
            RequestCode.PEEK_MESSAGE: self._pulls.with_group(self.peek),
            RequestCode.NOTIFICATION: self._pulls.with_group(self.notify),
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def pop(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Answer at once when there are messages, else hold the request."""
        ext = command.ext
        invisible_ms = required_number(ext, "invisibleTime", 1)
        ask = self._ask(ext)._replace(invisible_ms=min(invisible_ms, INVISIBLE_MS_MAX))
        batch = self._reads.take(ask)
        if batch.count or batch.is_cut:
            return self._answer(command, ask, batch)
        poll_ms = self._poll_ms(ext)
        if poll_ms <= 0:
            return self._answer(command, ask, batch)
        retry = partial(self._again, connection, command, ask)
        wanted = (ask.queue_id, ext.get("expType", ""), ext.get("exp", ""), ask.is_order)
        place = (ask.group, ask.topic, wanted)
        if self._pending.hold(connection, command.opaque, *place, poll_ms, retry):
            return None
        return self._nothing(command, ask, batch, ResponseCode.POLLING_FULL)

    def peek(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Answer the next messages without popping them."""
        ask = self._ask(command.ext)
        batch = self._reads.peek(ask)
        if not batch.count:
            return self._nothing(command, ask, batch, ResponseCode.PULL_NOT_FOUND)
        return self._found(command, ask, batch)

    def notify(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Answer as soon as there are messages."""
        ext = command.ext
        ask = self._ask(ext)
        poll_ms = self._poll_ms(ext)
        is_ready = self._reads.has_ready(ask)
        if is_ready or poll_ms <= 0:
            return _notice(command, has_messages=is_ready)
        retry = partial(self._notify_again, connection, command, ask)
        wanted = ("notify", ask.queue_id, ask.is_order)
        place = (ask.group, ask.topic, wanted)
        if self._pending.hold(connection, command.opaque, *place, poll_ms, retry):
            return None
        return _notice(command, has_messages=False, is_full=True)

    def polling_info(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Answer the number of held pops of a group."""
        group = required_text(command.ext, "consumerGroup")
        topic = required_text(command.ext, "topic")
        return command.reply(ext={"pollingNum": str(self._pending.count(group, topic))})

    def _ask(self, ext: Mapping[str, str]) -> PopAsk:
        group = required_text(ext, "consumerGroup")
        topic = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", -1, QUEUE_ID_MAX)
        _, config = self._pulls.readable(group, topic, queue_id)
        attempt_id = ext.get("attemptId", "")
        if len(attempt_id) > ATTEMPT_ID_SIZE_MAX:
            raise InvalidArgument(f"attemptId has more than {ATTEMPT_ID_SIZE_MAX} characters")
        kind, text = ext.get("expType") or TAG, ext.get("exp") or ALL_MESSAGES
        codes, sql = self._pulls.filter_of(topic, kind, text)
        return PopAsk(
            group,
            topic,
            queue_id,
            config.read_queue_count,
            min(max(optional_number(ext, "maxMsgNums", COUNT_MAX), 1), COUNT_MAX),
            self._size_max,
            0,
            optional_number(ext, "initMode", 0, 0, 1) == _FROM_END,
            optional_flag(ext, "order", False),
            attempt_id,
            codes,
            sql,
        )

    def _poll_ms(self, ext: Mapping[str, str]) -> int:
        return min(self._pulls.hold_ms(optional_number(ext, "pollTime", 0)), SUSPEND_MS_MAX)

    def _again(
        self,
        connection: Connection,
        command: RemotingCommand,
        ask: PopAsk,
        final: bool,
        place: Place,
    ) -> bool:
        """Retry a held pop; returns whether it has answered."""
        try:
            # The topic may have changed since the pop was held.
            _, config = self._pulls.readable(ask.group, ask.topic, ask.queue_id)
            ask = ask._replace(queue_count=config.read_queue_count)
            batch = self._reads.take(ask, place)
            if not final and not batch.count and not batch.is_cut:
                return False
            answer = self._answer(command, ask, batch)
        except RmqError as error:
            answer = failure_reply(connection, command, error)
        connection.send(answer)
        return True

    def _notify_again(
        self,
        connection: Connection,
        command: RemotingCommand,
        ask: PopAsk,
        final: bool,
        _: Place,
    ) -> bool:
        try:
            is_ready = self._reads.has_ready(ask)
            answer = _notice(command, has_messages=is_ready)
        except RmqError as error:
            is_ready, answer = True, failure_reply(connection, command, error)
        if is_ready or final:
            connection.send(answer)
        return is_ready or final

    def _answer(self, command: RemotingCommand, ask: PopAsk, batch: PopBatch) -> RemotingCommand:
        if not batch.count:
            return self._nothing(command, ask, batch, ResponseCode.POLLING_TIMEOUT)
        self._taken()
        self._stats.got(ask.group, ask.topic, batch.count, batch.size)
        if self._stats.tallies is not None:
            for span in batch.spans:
                until = span.offsets[-1] + 1
                self._stats.tallies.pulled(ask.group, span.topic, span.queue_id, until)
        return self._found(command, ask, batch)

    def _found(self, command: RemotingCommand, ask: PopAsk, batch: PopBatch) -> RemotingCommand:
        fields = {**_fields(ask, batch), **span_fields(batch.spans, is_order=ask.is_order)}
        return command.reply(ext=fields, body=b"".join(batch.parts))

    def _nothing(
        self, command: RemotingCommand, ask: PopAsk, batch: PopBatch, code: ResponseCode
    ) -> RemotingCommand:
        # Clients read these fields with any code.
        return command.reply(code, None, _fields(ask, batch))


def _fields(ask: PopAsk, batch: PopBatch) -> dict[str, str]:
    return {
        "popTime": str(batch.pop_time_ms),
        "invisibleTime": str(ask.invisible_ms),
        "reviveQid": str(ask.mark),
        "restNum": str(batch.rest),
    }


def _notice(
    command: RemotingCommand, *, has_messages: bool, is_full: bool = False
) -> RemotingCommand:
    return command.reply(
        ext={
            "hasMsg": "true" if has_messages else "false",
            "pollingFull": "true" if is_full else "false",
        }
    )
