"""END_TRANSACTION: a producer commits or rolls back its transaction.

Idempotent: a repeated verdict is answered like the first; a different one is rejected. The answer
is sent when the outcome is as durable as a send. A request must name the half message exactly: its
position, its offset, its id and the producer group that sent it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from broker_core.broker.request_fields import optional_flag, required_number, required_text
from broker_core.broker.transactions.half_message import HALF_QUEUE, Half, is_at
from broker_core.broker.transactions.service import Ended, Transactions, Verdict
from broker_core.codec.records.record_layout import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_HALF_TOPIC
from broker_core.errors import InvalidArgument, RemoteError, SystemBusy
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

_UNKNOWN: Final = 0
_VERDICTS: Final = {
    TRANSACTION_COMMIT: Verdict.COMMIT,
    TRANSACTION_ROLLBACK: Verdict.ROLLBACK,
}
# Timeout until a half message that was just stored is readable.
VISIBLE_TIMEOUT_S: Final = 3.0


class EndTransactionProcessor:
    """Event loop only."""

    def __init__(self, *, store: MessageStore, transactions: Transactions) -> None:
        self._store = store
        self._transactions = transactions

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.END_TRANSACTION: self.end}

    async def end(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        """Commit or roll back, and answer when that is durable."""
        ext = command.ext
        verdict = _verdict(ext)
        if not self._transactions.is_running:
            raise RemoteError(
                ResponseCode.SLAVE_NOT_AVAILABLE, "transactions end on the master, not here"
            )
        position = required_number(ext, "commitLogOffset", least=0)
        offset = required_number(ext, "tranStateTableOffset", least=0)
        half = await self._half(position, offset)
        _check_owner(half, ext)
        is_open = self._transactions.window.is_open(offset)
        if verdict is None or (command.is_oneway and not is_open):
            # Undecided: a check follows. Or ended before, and a one-way request gets no answer.
            return command.reply()
        if not optional_flag(ext, "fromTransactionCheck", False):
            self._check_in_time(half)
        ended = self._transactions.end(half, verdict)
        return await self._answer(command, ended, verdict)

    async def _half(self, position: int, offset: int) -> Half:
        store = self._store
        if offset < store.next_offset(TRANSACTION_HALF_TOPIC, HALF_QUEUE):
            try:
                await asyncio.wait_for(self._transactions.visible(offset), VISIBLE_TIMEOUT_S)
            except asyncio.TimeoutError:
                raise SystemBusy(
                    ResponseCode.SYSTEM_BUSY, f"half message {offset} cannot be read yet"
                ) from None
            half = self._transactions.half(offset)
            if half and is_at(half.record, offset) and half.record.physical_offset == position:
                return half
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR,
            f"there is no half message with offset {offset} at log position {position}",
        )

    def _check_in_time(self, half: Half) -> None:
        offset = half.record.queue_offset
        if half.immunity_ms is None or not self._transactions.window.is_open(offset):
            return
        if self._transactions.age_ms(half) > half.immunity_ms:
            raise RemoteError(
                ResponseCode.ILLEGAL_OPERATION,
                f"the {half.immunity_ms // 1000} s that this transaction asked for are over: "
                "the producer will be asked",
            )

    async def _answer(
        self, command: RemotingCommand, ended: Ended, asked: Verdict
    ) -> RemotingCommand:
        if not ended.result.ok:
            status = ended.result.status
            return command.reply(status.response_code, f"{status.name} {ended.result.remark}")
        if ended.verdict is not asked:
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"the transaction was not {asked.value}: it was {ended.verdict.value} before",
            )
        if ended.result.position < 0:
            # Long ago.
            return command.reply()
        result = await self._store.acknowledged(ended.result)
        status = result.status
        return command.reply(status.response_code, None if result.ok else status.name)


def _verdict(ext: Mapping[str, str]) -> Verdict | None:
    number = required_number(ext, "commitOrRollback")
    if number == _UNKNOWN:
        return None
    verdict = _VERDICTS.get(number)
    if verdict is None:
        raise InvalidArgument(
            f"commitOrRollback is {number}: give {TRANSACTION_COMMIT} to commit, "
            f"{TRANSACTION_ROLLBACK} to roll back, {_UNKNOWN} if it is not known"
        )
    return verdict


def _check_owner(half: Half, ext: Mapping[str, str]) -> None:
    group = required_text(ext, "producerGroup")
    if group != half.group:
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR, f"the transaction is not one of producer group {group[:255]}"
        )
    message_id = ext.get("msgId", "")
    if message_id and message_id not in (half.unique_key, half.record.message_id):
        # Another half message had this position before a power cut.
        raise RemoteError(
            ResponseCode.SYSTEM_ERROR,
            f"half message {half.record.queue_offset} is not message {message_id[:64]}",
        )
