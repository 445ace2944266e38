"""One send under way: the message, its attempts and the future of its result.

Single messages go as code 310, batches as 320, both with the short field names:

    a group  b topic  c template  d its queues  e queue  f sys flag  g born  h flag
    i properties  j reconsume times  k unit mode  m batch  n broker name
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from broker_core.client.connection.topic_queues import TEMPLATE_QUEUE_COUNT
from broker_core.client.produce.result import STATUS_OF_CODE, SendResult, SendStatus
from broker_core.codec.json.fields import I64_MAX
from broker_core.codec.records.record_layout import BATCH_ITEM, BATCH_ITEM_SIZE_MIN, I16
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import BINARY_HEADER, JSON_HEADER, RemotingCommand
from broker_core.codec.wire.topic_name import TEMPLATE_TOPIC
from broker_core.errors import UnexpectedAnswer
from broker_core.protocol_codes import RequestCode

# JSON escapes each separator of the property text as six characters, which can exceed the header
# limit of servers; binary headers do not escape.
_BINARY_FROM_SIZE: Final = 8_192
# Approximate size of a request without body and properties.
_HEADER_SIZE: Final = 300


class PendingSend:
    """A send and its state. `future` gets a `SendResult`, for a batch a tuple of them."""

    __slots__ = (
        "attempts_left", "body", "born", "busy_times", "deadline", "fixed_queue",
        "flag", "future", "in_lane", "lane_key", "queue", "size", "sys_flag", "text", "timeout_s",
        "timer", "topic", "unique_ids", "was_sent",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        body: bytes,
        text: str,
        unique_ids: str | Sequence[str],
        future: asyncio.Future[Any],
        *,
        born_ms: int,
        sys_flag: int = 0,
        flag: int = 0,
        fixed_queue: MessageQueue | None = None,
        lane_key: str | None = None,
        attempts: int = 1,
        timeout_s: float = 3.0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.text = text
        self.unique_ids = unique_ids
        self.future = future
        self.born = str(born_ms)
        self.sys_flag = str(sys_flag)
        self.flag = str(flag)
        self.fixed_queue = fixed_queue
        self.lane_key = lane_key
        self.attempts_left = attempts
        self.timeout_s = timeout_s
        self.size = len(body) + len(text) + _HEADER_SIZE
        # Set by the engine
        self.queue: MessageQueue | None = None
        self.deadline = 0.0
        self.busy_times = 0
        self.in_lane = False
        self.was_sent = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_batch(self) -> bool:
        """Whether the body contains several messages."""
        return type(self.unique_ids) is not str

    def command(self, group: str, queue: MessageQueue) -> RemotingCommand:
        """The request that sends it to `queue`."""
        is_batch = self.is_batch
        return RemotingCommand(
            RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
            {
                "a": group,
                "b": self.topic,
                "c": TEMPLATE_TOPIC,
                "d": _TEMPLATE_QUEUES,
                "e": str(queue.queue_id),
                "f": self.sys_flag,
                "g": self.born,
                "h": self.flag,
                "i": self.text,
                "j": "0",
                "k": "false",
                "m": "true" if is_batch else "false",
                "n": queue.broker_name,
            },
            self.body,
            serialize_type=BINARY_HEADER if len(self.text) > _BINARY_FROM_SIZE else JSON_HEADER,
        )

    def read_answer(
        self, queue: MessageQueue, answer: RemotingCommand
    ) -> SendResult | tuple[SendResult, ...]:
        """The result in an answer whose code is in `STATUS_OF_CODE`."""
        ext = answer.ext
        try:
            queue_id, offset, offset_ids = (
                int(ext["queueId"]),
                int(ext["queueOffset"]),
                ext["msgId"],
            )
        except (KeyError, ValueError):
            queue_id, offset, offset_ids = -1, -1, ""
        if queue_id < 0 or not 0 <= offset <= I64_MAX:
            raise UnexpectedAnswer(
                f"{queue.broker_name} stored a message of {self.topic} but returned no position"
            )
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        status, transaction = STATUS_OF_CODE[answer.code], ext.get("transactionId", "")
        if type(self.unique_ids) is str:
            return SendResult(
                status,
                self.unique_ids,
                offset_ids,
                queue,
                offset,
                transaction,
                ext.get("recallHandle", ""),
            )
        return self._batch_results(status, queue, offset, offset_ids)

    def _batch_results(
        self, status: SendStatus, queue: MessageQueue, offset: int, offset_ids: str
    ) -> tuple[SendResult, ...]:
        ids = offset_ids.split(",")
        if len(ids) != len(self.unique_ids):
            # The batch is stored; an error here would make callers send it again.
            ids = [""] * len(self.unique_ids)
        return tuple(
            SendResult(status, unique_id, ids[number], queue, offset + number)
            for number, unique_id in enumerate(self.unique_ids)
        )


def batch_item(body: bytes, text: str, flag: int) -> bytes:
    """One message inside the body of a batch."""
    raw = text.encode()
    size = BATCH_ITEM_SIZE_MIN + len(body) + len(raw)
    head = BATCH_ITEM.pack(size, 0, 0, flag, len(body))
    return b"".join((head, body, I16.pack(len(raw)), raw))


_TEMPLATE_QUEUES: Final = str(TEMPLATE_QUEUE_COUNT)
