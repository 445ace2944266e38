"""Messages that consumers get only if a local transaction succeeds.

    half message ─► local transaction ─► commit or rollback
                                 └── nothing ──► the broker asks `check` later

`send_in_transaction` stores a half message, which is not visible to consumers, runs `execute` and
sends its outcome to the broker. If the outcome is lost, or the process dies first, the broker asks
any producer of the group. `check` then answers from what the local transaction left behind, such as
a database row. So `check` must be able to answer for any process of the group.

Both functions may be coroutine functions; plain functions run in threads.
"""

from __future__ import annotations

import asyncio
import enum
import inspect
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.group_registry import ProducerRegistration
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.message_record import decode_record
from broker_core.codec.records.record_layout import (
    PROPERTY_TEXT_MAX,
    TRANSACTION_COMMIT,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.message_id import decode_message_id
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import (
    InvalidArgument,
    MessageTooLarge,
    NotAcknowledged,
    RmqError,
    UnexpectedAnswer,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler

_log = logging.getLogger(__name__)

# Limit of concurrent checks. Further ones are dropped; the broker repeats them.
CHECKS_MAX: Final = 2_000
_IMMUNITY_MAX_S: Final = 7 * 86_400


class TransactionState(enum.Enum):
    """The outcome of a local transaction."""

    COMMIT = TRANSACTION_COMMIT
    ROLLBACK = TRANSACTION_ROLLBACK
    UNKNOWN = 0
    """Not decided yet: the broker asks again, up to its limit."""


class TransactionResult(NamedTuple):
    """`is_confirmed`: the broker has stored the outcome; otherwise `remark` gives the reason.

    An unconfirmed transaction is not lost: the broker asks `check`.
    """

    half: SendResult
    state: TransactionState
    is_confirmed: bool
    remark: str = ""


Execute = Callable[[OutgoingMessage, Any], "TransactionState | Awaitable[TransactionState]"]
Check = Callable[[ReceivedMessage], "TransactionState | Awaitable[TransactionState]"]


class TransactionProducer(Producer):
    """A `Producer` that also sends in transactions.

    `execute(message, argument)` gets the message with its `unique_id`; `check(message)` gets the
    same id as `ReceivedMessage.message_id`. `options` are those of `Producer`.
    """

    def __init__(
        self,
        client: ClientInstance | ClientConfig,
        group: str,
        *,
        execute: Execute,
        check: Check,
        threads: int = 8,
        **options: Any,
    ) -> None:
        super().__init__(client, group, **options)
        self._execute = execute
        self._check = check
        self._pool: ThreadPoolExecutor | None = None
        self._threads = threads
        self._executing: set[str] = set()
        self._checking: set[str] = set()

    async def start(self) -> None:
        """Register the group and answer checks of brokers."""
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(self._threads, f"transaction-{self.group}")
        await self.client.start()
        handlers: dict[int, Handler] = {RequestCode.CHECK_TRANSACTION_STATE: self._asked}
        self.client.add_producer(ProducerRegistration(self.group, handlers))

    async def stop(self, wait_ms: float = 10_000) -> None:
        """As `Producer.stop`. Does not wait for running local transactions."""
        await super().stop(wait_ms)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    async def send_in_transaction(
        self,
        message: OutgoingMessage,
        argument: object = None,
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
        immunity_s: int | None = None,
    ) -> TransactionResult:
        """Send a half message, run the local transaction, and send its outcome.

        The broker asks `check` at the earliest after `immunity_s` (its default is 6 seconds). An
        exception of `execute` is raised here, and the transaction stays open for `check`. Sending
        the half is not retried: if it fails, `execute` has not run.
        """
        if message.delay_level:
            raise InvalidArgument("a message of a transaction cannot be delayed")
        unique_id = message.unique_id or self._ids.next(self._clock.wall_ms())
        message = message._replace(unique_id=unique_id)
        self._executing.add(unique_id)
        try:
            half = await self._send_half(message, queue, timeout_ms, immunity_s)
            state = _checked_state(await self._run(self._execute, message, argument))
        finally:
            self._executing.discard(unique_id)
        if state is TransactionState.UNKNOWN:
            return TransactionResult(half, state, False, "the broker will ask")
        remark = await self._end(message, half, state)
        return TransactionResult(half, state, not remark, remark)

    # The half message and its outcome

    async def _send_half(
        self,
        message: OutgoingMessage,
        queue: MessageQueue | None,
        timeout_ms: int | None,
        immunity_s: int | None,
    ) -> SendResult:
        future: asyncio.Future[SendResult] = self._running_loop().create_future()
        request = self._request(message, future, queue, None, timeout_ms)
        request.text += f"TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02{_immunity(immunity_s)}"
        if len(request.text.encode()) > PROPERTY_TEXT_MAX:
            raise MessageTooLarge(
                f"tags, keys and properties take more than {PROPERTY_TEXT_MAX} bytes together with"
                " those of the transaction"
            )
        request.sys_flag = str(int(request.sys_flag) | TRANSACTION_PREPARED)
        request.attempts_left = 1
        self._engine.submit(request)
        try:
            half = await future
        except NotAcknowledged as error:
            if isinstance(error.result, SendResult):
                # Stored but not safe, and `execute` has not run: roll back.
                await self._end(message, error.result, TransactionState.ROLLBACK)
            raise
        if not half.offset_msg_id:
            raise UnexpectedAnswer(
                f"{half.queue.broker_name} stored the half message but returned no position"
            )
        return half

    async def _end(
        self, message: OutgoingMessage, half: SendResult, state: TransactionState
    ) -> str:
        """Send the outcome. Returns why the broker did not confirm it, or ""."""
        command = self._end_command(
            state,
            offset=str(half.queue_offset),
            position=str(decode_message_id(half.offset_msg_id)[1]),
            unique_id=message.unique_id,
            transaction_id=half.transaction_id,
            topic=message.topic,
            broker_name=half.queue.broker_name,
        )
        try:
            answer = await self.client.request_broker(
                half.queue.broker_name, command, self._timeout_ms
            )
        except RmqError as error:
            return str(error) or type(error).__name__
        if answer.code == ResponseCode.SUCCESS:
            return ""
        return answer.remark or f"response code {answer.code}"

    def _end_command(
        self,
        state: TransactionState,
        *,
        offset: str,
        position: str,
        unique_id: str,
        transaction_id: str,
        topic: str,
        broker_name: str,
        is_check: bool = False,
    ) -> RemotingCommand:
        ext = {
            "producerGroup": self.group,
            "tranStateTableOffset": offset,
            "commitLogOffset": position,
            "commitOrRollback": str(state.value),
            "fromTransactionCheck": "true" if is_check else "false",
            "msgId": unique_id,
            "transactionId": transaction_id or unique_id,
            "topic": topic,
            "bname": broker_name,
        }
        return RemotingCommand(RequestCode.END_TRANSACTION, ext)

    # Checks

    async def _asked(self, connection: Connection, command: RemotingCommand) -> None:
        """CHECK_TRANSACTION_STATE. An exception of `check` is logged; the broker asks again."""
        ext = command.ext
        record = decode_record(command.body)
        queue = MessageQueue(record.topic, ext.get("bname", ""), record.queue_id)
        message = ReceivedMessage(record, queue, self._config.decompressed_size_max)
        unique_id = message.properties.get(names.UNIQ_KEY, "")
        if unique_id in self._executing or unique_id in self._checking:
            # `execute` or an earlier check will answer.
            return
        if len(self._checking) >= CHECKS_MAX:
            _log.warning(
                "%d transactions are being checked; the check of %s is dropped",
                CHECKS_MAX,
                unique_id,
            )
            return
        self._checking.add(unique_id)
        try:
            state = _checked_state(await self._run(self._check, message))
        finally:
            self._checking.discard(unique_id)
        answer = self._end_command(
            state,
            offset=ext.get("tranStateTableOffset", ""),
            position=ext.get("commitLogOffset", ""),
            unique_id=unique_id,
            transaction_id=ext.get("transactionId", ""),
            topic=record.topic,
            broker_name=ext.get("bname", ""),
            is_check=True,
        )
        connection.oneway(answer)

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if inspect.iscoroutinefunction(function):
            return await function(*arguments)
        pool, loop = self._pool, self._loop
        if pool is None or loop is None:
            raise InvalidArgument("the producer is not started; use `async with` or start()")
        result = await loop.run_in_executor(pool, partial(function, *arguments))
        # A callable object or a lambda may have returned a coroutine.
        return await result if inspect.isawaitable(result) else result


def _checked_state(state: object) -> TransactionState:
    if isinstance(state, TransactionState):
        return state
    # Neither commit nor rollback: a wrong return value must not lose or send a message.
    raise InvalidArgument(f"give a TransactionState, not {state!r:.80}")


def _immunity(seconds: int | None) -> str:
    if seconds is None:
        return ""
    if type(seconds) is not int or not 1 <= seconds <= _IMMUNITY_MAX_S:
        raise InvalidArgument(
            f"immunity_s is {seconds!r:.40}: give whole seconds, 1 to {_IMMUNITY_MAX_S}"
        )
    return f"{names.CHECK_IMMUNITY_TIME}\x01{seconds}\x02"
