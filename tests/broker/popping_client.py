"""A consumer that pops, over any connection: it reads answers and makes handles as Java does."""

from __future__ import annotations

from typing import Any, NamedTuple

from broker_core.codec.records.message_record import MessageRecord
from broker_core.codec.wire.pop_handle import POP_CK, PopHandle, real_topic, topic_type
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import Asker, records

NOTHING = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
)


class Popped(NamedTuple):
    """A message and its receipt."""

    record: MessageRecord
    handle: PopHandle
    tries: int

    @property
    def body(self) -> bytes:
        return self.record.body


def offset_info(text: str) -> dict[tuple[str, int], str]:
    """`startOffsetInfo` or `msgOffsetInfo` by topic type and queue."""
    found = {}
    for entry in filter(None, text.split(";")):
        kind, queue_id, value = entry.split(" ")
        found[kind, int(queue_id)] = value
    return found


def popped(answer: RemotingCommand, broker_name: str = "broker-a") -> list[Popped]:
    """The messages of an answer, with handles made from its fields."""
    if answer.code not in (ResponseCode.SUCCESS, *NOTHING):
        raise RemoteError.for_code(answer.code, answer.remark)
    if answer.code != ResponseCode.SUCCESS:
        assert int(answer.ext["popTime"]) > 0
        assert int(answer.ext["restNum"]) >= 0
        return []
    ext = answer.ext
    starts, offsets = offset_info(ext["startOffsetInfo"]), offset_info(ext["msgOffsetInfo"])
    counts = {}
    for entry in filter(None, ext.get("orderCountInfo", "").split(";")):
        kind, place, count = entry.split(" ")
        counts[kind, place] = int(count)
    found = []
    for record in records(answer):
        kind = topic_type(record.topic)
        inside = record.properties.get(POP_CK)
        if inside is not None:
            handle = PopHandle(*(int(w) if w.isdigit() else w for w in inside.split(" ")))  # type: ignore[arg-type]
            handle = handle._replace(topic_type=str(handle.topic_type))
        else:
            assert str(record.queue_offset) in offsets[kind, record.queue_id].split(",")
            handle = PopHandle(
                int(starts[kind, record.queue_id]), int(ext["popTime"]), int(ext["invisibleTime"]),
                int(ext["reviveQid"]), kind, broker_name, record.queue_id, record.queue_offset,
            )  # fmt: skip
        tries = counts.get((kind, f"qo{record.queue_id}%{record.queue_offset}"), 0)
        found.append(Popped(record, handle, tries))
    return found


class PoppingClient:
    """A member of a group that pops one topic."""

    def __init__(self, asker: Asker, group: str = "G", topic: str = "T") -> None:
        self.asker = asker
        self.group = group
        self.topic = topic

    async def ask(self, code: int, body: bytes = b"", **ext: Any) -> RemotingCommand:
        named = {"consumerGroup": self.group, "topic": self.topic, **ext}
        return await self.asker.ask(code, body, **named)

    async def answer(self, **ext: Any) -> RemotingCommand:
        """The answer to POP_MESSAGE."""
        fields = {
            "queueId": -1, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 0,
            "bornTime": 1, "initMode": 0,
        }  # fmt: skip
        return await self.ask(RequestCode.POP_MESSAGE, **{**fields, **ext})

    async def pop(self, **ext: Any) -> list[Popped]:
        """What POP_MESSAGE gives."""
        return popped(await self.answer(**ext))

    def _of(self, message: Popped) -> dict[str, Any]:
        handle = message.handle
        return {
            "topic": real_topic(self.group, self.topic, handle.topic_type),
            "queueId": handle.queue_id,
            "offset": handle.offset,
            "extraInfo": handle.text(),
        }

    async def ack(self, message: Popped, **ext: Any) -> int:
        """The code of the answer."""
        return (await self.ask(RequestCode.ACK_MESSAGE, **{**self._of(message), **ext})).code

    async def change(self, message: Popped, invisible_ms: int) -> Popped | int:
        """The message with its new handle, or the code of a refusal."""
        answer = await self.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            invisibleTime=invisible_ms,
            **self._of(message),
        )
        if answer.code:
            return answer.code
        handle = message.handle._replace(
            start_offset=message.handle.offset,
            pop_time_ms=int(answer.ext["popTime"]),
            invisible_ms=int(answer.ext["invisibleTime"]),
            mark=int(answer.ext["reviveQid"]),
        )
        return message._replace(handle=handle)

    async def drain(self, **ext: Any) -> list[Popped]:
        """Pop and acknowledge until there is nothing."""
        found: list[Popped] = []
        while batch := await self.pop(**ext):
            for message in batch:
                assert await self.ack(message) == 0
            found += batch
        return found
