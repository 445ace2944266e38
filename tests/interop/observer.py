"""What a scenario asks a broker beside the client that it tests, in plain blocking calls.

Not every library can create a topic, tell offsets or pull a queue. Those that cannot are observed
through our own requests, so that each scenario can say what was really stored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from broker_core.client.pull.received_message import ReceivedMessage, decode_messages
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.client import RemotingClient
from tests.interop.driven_client import Row
from tests.patient_client import patient_client

REQUEST_TIMEOUT_MS = 60_000
TEXT_BYTES_MAX = 64
_PULL_STATUSES = {0: "FOUND", 19: "NO_NEW_MSG", 20: "NO_MATCHED_MSG", 21: "OFFSET_ILLEGAL"}


class Refused(Exception):
    """The broker answered with an error."""


class Observer:
    """Asks one broker; each call is a connection of its own."""

    def __init__(self, address: str, broker_name: str) -> None:
        self._address = address
        self._broker_name = broker_name

    def create_topic(self, topic: str, queues: int) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": "false",
        }
        self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    def offsets(self, topic: str, queue: int = 0) -> Row:
        """Lowest and next offset of a queue."""
        place = {"topic": topic, "queueId": queue}
        lowest = self._ask(RequestCode.GET_MIN_OFFSET, place)
        highest = self._ask(RequestCode.GET_MAX_OFFSET, place)
        return {
            "min": int(lowest.ext["offset"]),
            "max": int(highest.ext["offset"]),
        }

    def committed(self, group: str, topic: str, queue: int = 0) -> int | None:
        """The offset that the broker keeps for a group; None without one."""
        place = {"consumerGroup": group, "topic": topic, "queueId": queue}
        try:
            answer = self._ask(RequestCode.QUERY_CONSUMER_OFFSET, place)
        except Refused:
            return None
        return int(answer.ext["offset"])

    def members(self, group: str) -> list[str]:
        """The client ids of a group, as the broker knows them now."""
        fields = {"consumerGroup": group}
        try:
            answer = self._ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        except Refused:
            return []
        return sorted(json_body(answer).get("consumerIdList", []))

    def has_producer(self, group: str, topic: str) -> bool:
        """Whether the broker knows a connection of a producer group now."""
        fields = {"producerGroup": group, "topic": topic}
        answer = self._answered(RequestCode.GET_PRODUCER_CONNECTION_LIST, fields)
        return answer.code == 0 and bool(json_body(answer).get("connectionSet"))

    def pull(self, topic: str, queue: int, offset: int, count: int) -> Row:
        """One pull, described as the drivers describe theirs."""
        fields = {
            "consumerGroup": "OBSERVER",
            "topic": topic,
            "queueId": queue,
            "queueOffset": offset,
            "maxMsgNums": count,
            # The subscription comes with the pull: the group has no member that told it before.
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
        }
        answer = self._answered(RequestCode.PULL_MESSAGE, fields)
        if answer.code not in _PULL_STATUSES:
            raise Refused(f"{answer.code} {answer.remark}")
        place = MessageQueue(topic, self._broker_name, queue)
        found = decode_messages(answer.body, place) if answer.code == 0 else []
        return {
            "status": _PULL_STATUSES[answer.code],
            "next": int(answer.ext["nextBeginOffset"]),
            "min": int(answer.ext["minOffset"]),
            "max": int(answer.ext["maxOffset"]),
            "messages": [described(message) for message in found],
        }

    def _ask(self, code: int, fields: Row) -> RemotingCommand:
        answer = self._answered(code, fields)
        if answer.code != 0:
            raise Refused(f"{answer.code} {answer.remark}")
        return answer

    def _answered(self, code: int, fields: Row) -> RemotingCommand:
        texts = {name: str(value) for name, value in fields.items()}
        command = RemotingCommand(code, texts)

        async def ask(client: RemotingClient) -> RemotingCommand:
            return await client.request(self._address, command, REQUEST_TIMEOUT_MS)

        return _run(ask)


def json_body(answer: RemotingCommand) -> Any:
    """The JSON text of an answer's body."""
    return json.loads(bytes(answer.body)) if answer.body else {}


def _run(ask: Callable[[RemotingClient], Awaitable[RemotingCommand]]) -> RemotingCommand:
    async def with_client() -> RemotingCommand:
        client = patient_client()
        try:
            return await ask(client)
        finally:
            await client.close()

    return asyncio.run(with_client())


def described(message: ReceivedMessage) -> Row:
    record = message.record
    row: Row = {
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "reconsume_times": message.reconsume_times,
        "topic": record.topic,
        "broker": message.queue.broker_name,
        "body": message.body,
        "properties": message.properties,
        "tags": message.tags or None,
        "keys": message.keys or None,
        "flag": message.flag,
        "sys_flag": record.sys_flag,
        "msg_id": message.message_id,
        "offset_msg_id": message.offset_message_id,
        "born_timestamp": message.born_timestamp,
        "store_timestamp": message.store_timestamp,
        "store_host": ":".join(map(str, record.store_host)),
        "log_offset": message.physical_offset,
    }
    if len(message.body) <= TEXT_BYTES_MAX:
        row["text"] = message.body.decode(errors="replace")
    return row
