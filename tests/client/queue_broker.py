"""A name server and brokers of a few lines, over real sockets: one topic, what tests put into it.

They serve pulls with Apache's limits (count, bytes, one queue file at a time) or bulk pulls, and
can be slow, refuse, lie or go away: what real brokers do only when one cannot wait for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.server import RemotingServer

TOPIC = "T"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)

Answer = RemotingCommand | None


def stored(offset: int, body: bytes = b"", tags: str = "", append_crc: bool = False) -> bytes:
    """A record as a broker stores it; other queues' records lie between those of this one."""
    return encode_record(
        MessageRecord(
            TOPIC,
            0,
            body or b"body-%d" % offset,
            f"TAGS\x01{tags}\x02".encode() if tags else b"",
            queue_offset=offset,
            physical_offset=10_000 + offset * 5_000 + offset % 7,
            born_timestamp=1_700_000_000_000 + offset,
            store_timestamp=1_700_000_001_000 + offset,
        ),
        append_crc,
    )


class ScriptedBroker:
    """One member of broker-a with the records of queue 0."""

    def __init__(self, records: list[bytes], first_offset: int = 0) -> None:
        self.records = records
        self.first_offset = first_offset
        self.count_max = 32
        self.size_max = 256 << 10
        self.file_count = 1_000_000
        self.has_bulk = False
        self.suggested_id = 0
        # Delay of answers, in time or in turns of the loop; clients may send more meanwhile.
        self.delay_s = 0.0
        self.delay_turns = 0
        # Called with each pull; an answer of its own replaces the broker's.
        self.before_pull: Callable[[RemotingCommand], Answer] = lambda command: None
        self.handlers: dict[int, Callable[[RemotingCommand], Answer]] = {}
        self.seen: list[RemotingCommand] = []
        self.connection: Connection | None = None
        self.under_way = 0
        self.under_way_most = 0
        self._server = RemotingServer(self._handle)
        self._grown = asyncio.Event()
        self.address = ""

    @property
    def max_offset(self) -> int:
        return self.first_offset + len(self.records)

    async def start(self) -> None:
        self.address = f"127.0.0.1:{await self._server.start('127.0.0.1', 0)}"

    async def stop(self) -> None:
        await self._server.stop(100)

    def add(self, *records: bytes) -> None:
        self.records.extend(records)
        self._grown.set()
        self._grown = asyncio.Event()

    def pulls(self) -> list[RemotingCommand]:
        codes = (RequestCode.PULL_MESSAGE, RequestCode.BULK_PULL)
        return [command for command in self.seen if command.code in codes]

    async def _handle(self, connection: Connection, command: RemotingCommand) -> Answer:
        self.seen.append(command)
        self.connection = connection
        if command.code == RequestCode.PULL_MESSAGE:
            return await self._timed(command, self._pull)
        if command.code in self.handlers:
            return self.handlers[command.code](command)
        if command.code == RequestCode.HEART_BEAT:
            return command.reply()
        if self.has_bulk and command.code == RequestCode.CAPABILITIES:
            return command.reply(ext={"bulkPull": "1", "bulkSend": "1", "frameSizeMax": "16777216"})
        if self.has_bulk and command.code == RequestCode.BULK_PULL:
            return await self._timed(command, self._bulk)
        return command.reply(3, f"request type {command.code} not supported")

    async def _timed(self, command: RemotingCommand, serve: Callable[..., Any]) -> Answer:
        self.under_way += 1
        self.under_way_most = max(self.under_way_most, self.under_way)
        try:
            for _ in range(self.delay_turns):
                await asyncio.sleep(0)
            if self.delay_s:
                never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                await asyncio.wait((never,), timeout=self.delay_s)
            answer: Answer = self.before_pull(command) or await serve(command)
            return answer
        finally:
            self.under_way -= 1

    async def _pull(self, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        offset, count = int(ext["queueOffset"]), min(int(ext["maxMsgNums"]), self.count_max)
        may_wait = int(ext["sysFlag"]) & 2 and int(ext["suspendTimeoutMillis"])
        return await self._serve(command, offset, count, self.size_max, may_wait)

    async def _bulk(self, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        may_wait = int(ext.get("suspendTimeoutMillis", "0"))
        size_max = int(ext["maxBytes"])
        count = int(ext["maxCount"])
        return await self._serve(command, int(ext["offset"]), count, size_max, may_wait)

    async def _serve(
        self, command: RemotingCommand, offset: int, count: int, size_max: int, wait_ms: int
    ) -> RemotingCommand:
        if offset == self.max_offset and wait_ms:
            grown = asyncio.ensure_future(self._grown.wait())
            try:
                await asyncio.wait((grown,), timeout=wait_ms / 1000)
            finally:
                grown.cancel()
        if not self.first_offset <= offset <= self.max_offset:
            near = self.first_offset if offset < self.first_offset else self.max_offset
            return self.answer(command, 21, near)
        found: list[bytes] = []
        size = 0
        file_end = (offset // self.file_count + 1) * self.file_count
        for record in self.records[offset - self.first_offset : file_end - self.first_offset]:
            if found and (len(found) >= count or size + len(record) > size_max):
                break
            found.append(record)
            size += len(record)
        if not found:
            return self.answer(command, 19, offset)
        return self.answer(command, 0, offset + len(found), b"".join(found))

    def answer(
        self, command: RemotingCommand, code: int, next_offset: int, body: bytes = b""
    ) -> RemotingCommand:
        ext = {
            "nextBeginOffset": str(next_offset),
            "minOffset": str(self.first_offset),
            "maxOffset": str(self.max_offset),
            "suggestWhichBrokerId": str(self.suggested_id),
        }
        return command.reply(code, ext=ext, body=body)


class ScriptedCluster:
    """The members of broker-a behind one name server, and a client of theirs."""

    def __init__(self, client: ClientInstance, members: dict[int, ScriptedBroker]) -> None:
        self.client = client
        self.members = members
        self.broker = members[min(members)]


@contextlib.asynccontextmanager
async def scripted_cluster(
    *brokers: ScriptedBroker, **config: Any
) -> AsyncIterator[ScriptedCluster]:
    """Brokers by id in the order given, 0 being the master."""
    members = dict(enumerate(brokers))
    async with contextlib.AsyncExitStack() as stack:
        for broker in brokers:
            await broker.start()
            stack.push_async_callback(broker.stop)

        def name_server(connection: Connection, command: RemotingCommand) -> RemotingCommand:
            if command.ext.get("topic") != TOPIC:
                return command.reply(17, "no such topic")
            return command.reply(body=_route(members))

        server = RemotingServer(name_server)
        port = await server.start("127.0.0.1", 0)
        stack.push_async_callback(server.stop, 100)
        client = ClientInstance(ClientConfig((f"127.0.0.1:{port}",), **config))
        await stack.enter_async_context(client)
        await client.routes.route(TOPIC)
        yield ScriptedCluster(client, members)


def _route(members: dict[int, ScriptedBroker]) -> bytes:
    addresses = {str(number): broker.address for number, broker in members.items()}
    queues = {"brokerName": "broker-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    return emit_json(
        {
            "brokerDatas": [
                {"brokerAddrs": addresses, "brokerName": "broker-a", "cluster": "DefaultCluster"}
            ],
            "filterServerTable": {},
            "queueDatas": [{**queues, "topicSysFlag": 0}],
        }
    )
