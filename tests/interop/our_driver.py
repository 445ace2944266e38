"""Drives our own client as the drivers of other languages drive theirs: `python -m …our_driver`.

A command per line on standard input, JSON lines on standard output; see `driven_client.py`. One
event loop holds every client; each command is a task of its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import parse_qs

from broker_core.client.admin.admin import Admin
from broker_core.client.connection.config import ClientConfig
from broker_core.client.connection.instance import ClientInstance
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.client.produce.producer import Producer
from broker_core.client.produce.result import SendResult
from broker_core.client.pull.consumer import PullConsumer
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.client.push.consumer import PushConsumer
from broker_core.client.push.types import ConsumeContext, ConsumeStatus
from broker_core.client.transactions.producer import TransactionProducer, TransactionState
from broker_core.codec.wire.bodies.message_queue import MessageQueue
from broker_core.errors import RmqError
from tests.interop.observer import described

Row = dict[str, Any]

PULL_STATUSES = {
    "NO_NEW_MESSAGE": "NO_NEW_MSG",
    "NO_MATCHED_MESSAGE": "NO_MATCHED_MSG",
}
STATES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}
# Long enough for a pull that a scenario wants to wait.
SUSPEND_MS = 20_000
# What a frame can hold; larger settings are refused.
BODY_SIZE_MAX = 12_000_000
FAILURE_PAUSE_S = 0.1
# What a busy machine may take for an answer.
PATIENCE_MS = 60_000
# Of a scenario or of this file: the caller is told.
_MISTAKES = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
BRIEF = ("queue", "offset", "reconsume_times", "text")


def emit(row: Row) -> None:
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


def for_line(message: ReceivedMessage, *, brief: bool = False) -> Row:
    row = described(message)
    # Without the fixed fields of a record: nearly what the broker stored.
    row["store_size"] = message.size
    row["topic"] = message.topic
    row["body"] = base64.b64encode(row["body"]).decode()
    return {name: row[name] for name in BRIEF if name in row} if brief else row


class Command:
    """One form-encoded line: fields by name, a field may occur several times."""

    def __init__(self, line: str) -> None:
        self.fields = parse_qs(line.strip(), keep_blank_values=True)

    def text(self, name: str, otherwise: str = "") -> str:
        return self.fields.get(name, [otherwise])[0]

    def number(self, name: str, otherwise: int = 0) -> int:
        return int(self.text(name, str(otherwise)))

    def flag(self, name: str) -> bool:
        return self.text(name) == "true"

    def bodies(self) -> list[bytes]:
        return [base64.b64decode(text) for text in self.fields["body"]]

    def queue(self) -> MessageQueue | None:
        if "queue" not in self.fields:
            return None
        return MessageQueue(self.text("topic"), self.text("broker"), self.number("queue"))

    def config(self) -> ClientConfig:
        options: Row = {"request_timeout_ms": PATIENCE_MS}
        for field, option in (
            ("heartbeat_ms", "heartbeat_interval_ms"),
            ("route_ms", "route_poll_interval_ms"),
            ("size_max", "body_size_max"),
        ):
            if field in self.fields:
                options[option] = min(self.number(field), BODY_SIZE_MAX)
        if "compress_over" in self.fields:
            # What is never that large is never compressed.
            over = self.number("compress_over")
            options["compress_from_size"] = over if over < 1 << 30 else 0
        return ClientConfig((self.text("ns"),), client_id=self.text("instance"), **options)

    def message(self, body: bytes) -> OutgoingMessage:
        pairs = (text.partition("=") for text in self.fields.get("property", ()))
        return OutgoingMessage(
            self.text("topic"),
            body,
            self.text("tags"),
            self.text("keys"),
            {key: value for key, _, value in pairs},
            self.number("delay_level"),
            self.number("flag"),
            self.text("shard") or None,
        )


def sent(result: SendResult) -> Row:
    return {
        "status": result.status.name,
        "msg_id": result.msg_id,
        "offset_msg_id": result.offset_msg_id,
        "queue_offset": result.queue_offset,
        "queue": result.queue.queue_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "recall_handle": result.recall_handle,
    }


class Flood:
    """Sends numbered messages until it is told to end; a failed number is not sent again."""

    def __init__(self, producer: Producer, topic: str, gap_ms: int) -> None:
        self._ending = asyncio.Event()
        self.acknowledged: list[int] = []
        self.failed: list[int] = []
        self._task = asyncio.create_task(self._run(producer, topic, gap_ms / 1000))

    async def _run(self, producer: Producer, topic: str, gap_s: float) -> None:
        number = 0
        while not self._ending.is_set():
            pause = gap_s
            try:
                await producer.send(topic, b"n%d" % number)
                self.acknowledged.append(number)
            except RmqError:
                self.failed.append(number)
                pause = FAILURE_PAUSE_S
            number += 1
            await asyncio.wait((asyncio.ensure_future(self._ending.wait()),), timeout=pause)

    async def end(self) -> Row:
        self._ending.set()
        await self._task
        return {"acknowledged": self.acknowledged, "failed": self.failed}


class Listener:
    """Accepts everything but texts that start with "fail", those after some attempts."""

    def __init__(self, driver: Driver, command: Command) -> None:
        self._driver = driver
        self._command = command
        self._attempts: Counter[str] = Counter()

    async def __call__(
        self, messages: Sequence[ReceivedMessage], context: ConsumeContext
    ) -> ConsumeStatus:
        now = time.perf_counter()
        command = self._command
        context.delay_level = command.number("delay_level")
        context.suspend_ms = command.number("suspend_ms", 100)
        rows = [for_line(message, brief=command.flag("brief")) for message in messages]
        emit({"event": "received", "consumer": command.text("consumer"), "messages": rows})
        for message in messages:
            self._driver.saw(message.body.decode(errors="replace"), now)
            if "reply_by" in command.fields:
                producer = self._driver.clients[command.text("reply_by")]
                await producer.reply(message, b"re: " + message.body)
        accepted = [self._accepts(message) for message in messages]
        return ConsumeStatus.SUCCESS if all(accepted) else ConsumeStatus.LATER

    def _accepts(self, message: ReceivedMessage) -> bool:
        if not message.body.startswith(b"fail"):
            return True
        self._attempts[message.message_id] += 1
        return self._attempts[message.message_id] > self._command.number("failures")


class Deciding:
    """The words of a body are its answers: of the local transaction, then of the checks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._checks: Counter[bytes] = Counter()

    async def execute(self, message: OutgoingMessage, argument: object) -> TransactionState:
        return self._state(message.body, 0)

    async def check(self, message: ReceivedMessage) -> TransactionState:
        self._checks[message.body] += 1
        emit({"event": "received", "consumer": self._name, "messages": [for_line(message)]})
        return self._state(message.body, self._checks[message.body])

    def _state(self, body: bytes, number: int) -> TransactionState:
        words = body.decode().split("-")
        return STATES.get(words[number] if number < len(words) else "", TransactionState.UNKNOWN)


class Driver:
    """Every client of the process by its name, and the commands."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self._floods: dict[str, Flood] = {}
        self._watched: dict[str, asyncio.Future[float]] = {}

    def saw(self, text: str, at: float) -> None:
        waiting = self._watched.pop(text, None)
        if waiting is not None:
            waiting.set_result(at)

    async def answer(self, line: str) -> None:
        command = Command(line)
        number = command.number("id")
        room, _, op = command.text("op").partition(".")
        perform: Callable[[str, Command], Awaitable[Any]] = getattr(self, room)
        try:
            emit({"id": number, "done": await perform(op, command)})
        except (RmqError, OSError, *_MISTAKES) as failure:
            code = getattr(failure, "code", None) or getattr(failure, "response_code", None)
            row = {"type": type(failure).__name__, "message": str(failure)}
            emit({"id": number, "error": row if code is None else {**row, "code": int(code)}})

    async def producer(self, op: str, command: Command) -> Any:
        name = command.text("producer")
        if op == "start":
            options = {"timeout_ms": command.number("timeout_ms", PATIENCE_MS)}
            if "retries" in command.fields:
                options["retries"] = command.number("retries")
            self.clients[name] = Producer(command.config(), command.text("group"), **options)
            await self.clients[name].start()
            return True
        producer: Producer = self.clients[name]
        return await getattr(self, f"_{op}")(producer, command)

    async def _send(self, producer: Producer, command: Command) -> Any:
        message = command.message(command.bodies()[0])
        return sent(await producer.send(message, queue=command.queue()))

    _async = _send

    async def _ordered(self, producer: Producer, command: Command) -> Any:
        return sent(await producer.send_ordered(command.message(command.bodies()[0])))

    async def _oneway(self, producer: Producer, command: Command) -> Any:
        await producer.send_oneway(command.message(command.bodies()[0]), command.queue())
        return True

    async def _batch(self, producer: Producer, command: Command) -> Any:
        messages = [command.message(body) for body in command.bodies()]
        results = await producer.send_batch(messages, queue=command.queue())
        row = sent(results[0])
        row["msg_id"] = ",".join(result.msg_id for result in results)
        row["offset_msg_id"] = ",".join(result.offset_msg_id for result in results)
        return row

    async def _request(self, producer: Producer, command: Command) -> Any:
        message = command.message(command.bodies()[0])
        reply = await producer.request(message, timeout_ms=command.number("limit_ms"))
        return {"text": reply.body.decode(), "properties": dict(reply.properties)}

    async def _recall(self, producer: Producer, command: Command) -> Any:
        recalled = await producer.recall(command.text("topic"), command.text("handle"))
        return recalled.msg_id

    async def _stream(self, producer: Producer, command: Command) -> Any:
        """Each queue's part one after another; the offsets of each queue in order."""
        topic, queues = command.text("topic"), command.number("queues", 1)
        each = command.number("count") // queues

        async def part(number: int) -> list[int]:
            queue = MessageQueue(topic, command.text("broker"), number)
            return [
                (await producer.send(topic, b"q%d-%d" % (number, n), queue=queue)).queue_offset
                for n in range(each)
            ]

        parts = await asyncio.gather(*map(part, range(queues)))
        return {str(number): offsets for number, offsets in enumerate(parts)}

    async def _latency(self, producer: Producer, command: Command) -> Any:
        spent = []
        loop = asyncio.get_running_loop()
        for number in range(command.number("rounds", 1)):
            # The consumer's next pull must be waiting at the broker before the message comes.
            await asyncio.wait((loop.create_future(),), timeout=command.number("gap_ms", 20) / 1000)
            text = f"{command.text('mark')}{number}"
            seen = self._watched[text] = loop.create_future()
            started = time.perf_counter()
            await producer.send(command.text("topic"), text.encode())
            spent.append(round((await seen - started) * 1e6))
        return sorted(spent)

    async def _flood(self, producer: Producer, command: Command) -> Any:
        flood = Flood(producer, command.text("topic"), command.number("gap_ms", 1))
        self._floods[command.text("producer")] = flood
        return True

    async def _flood_end(self, producer: Producer, command: Command) -> Any:
        return await self._floods.pop(command.text("producer")).end()

    async def _close(self, client: Any, command: Command) -> Any:
        await client.stop()
        return True

    async def transaction(self, op: str, command: Command) -> Any:
        name = command.text("producer")
        if op == "start":
            decides = Deciding(name)
            self.clients[name] = TransactionProducer(
                command.config(), command.text("group"), execute=decides.execute,
                check=decides.check, timeout_ms=command.number("timeout_ms", PATIENCE_MS),
            )  # fmt: skip
            await self.clients[name].start()
            return True
        if op == "send":
            message = command.message(command.bodies()[0])
            result = await self.clients[name].send_in_transaction(message)
            return sent(result.half)
        return await self._close(self.clients.pop(name), command)

    async def push(self, op: str, command: Command) -> Any:
        name = command.text("consumer")
        if op == "start":
            consumer = PushConsumer(
                command.config(), command.text("group"), Listener(self, command),
                **push_settings(command),
            )  # fmt: skip
            for topic in command.fields["topic"]:
                if "sql" in command.fields:
                    consumer.subscribe(topic, command.text("sql"), "SQL92")
                else:
                    consumer.subscribe(topic, command.text("expression", "*"))
            await consumer.start()
            self.clients[name] = consumer
            return True
        if op == "queues":
            assigned = self.clients[name].rebalance.assigned
            topic = command.text("topic")
            return sorted(queue.queue_id for queue in assigned if queue.topic == topic)
        if op == "progress":
            held = self.clients[name]
            return {
                str(queue.queue_id): held.keeper.noted(queue)
                for queue in held.rebalance.assigned
                if queue.topic == command.text("topic")
            }
        return await self._close(self.clients.pop(name), command)

    async def pull(self, op: str, command: Command) -> Any:
        name = command.text("consumer")
        if op == "start":
            client = ClientInstance(command.config())
            await client.start()
            self.clients[name] = PullConsumer(client, command.text("group"))
            return True
        consumer: PullConsumer = self.clients[name]
        if op == "close":
            return await self._close(consumer.client, command)
        queue = command.queue()
        assert queue is not None
        if op == "commit":
            await consumer.commit(queue, command.number("offset"))
            return True
        if op == "committed":
            return await consumer.committed(queue)
        result = await consumer.pull(
            queue,
            command.number("offset"),
            max_count=command.number("count", 32),
            suspend_ms=SUSPEND_MS if command.flag("block") else 0,
            expression=command.text("expression", "*"),
        )
        return {
            "status": PULL_STATUSES.get(result.status.name, result.status.name),
            "next": result.next_offset,
            "min": result.min_offset,
            "max": result.max_offset,
            "messages": [for_line(message) for message in result.messages],
        }

    async def admin(self, op: str, command: Command) -> Any:
        async with Admin(self.clients[command.text("producer")].client) as admin:
            topic, queue = command.text("topic"), command.queue()
            if op == "create_topic":
                await admin.create_topic(topic, queue_count=command.number("queues", 4))
                return True
            if op == "queues":
                queues = await admin.client.routes.publish_queues(topic)
                return sorted(found.queue_id for found in queues)
            if op == "view":
                return await self._viewed(admin, topic, command.text("msg_id"))
            if op == "query":
                return await self._queried(admin, topic, command.text("key"))
            assert queue is not None
            if op == "at_time":
                return await admin.offset_by_time(queue, command.number("timestamp"))
            return {
                "min": await admin.min_offset(queue),
                "max": await admin.max_offset(queue),
            }

    async def _viewed(self, admin: Admin, topic: str, message_id: str) -> Row:
        if len(message_id) == 32 and message_id.startswith("7F000001"):
            record = await admin.view_message(message_id, topic)
        else:
            [record, *_] = await admin.query_messages(topic, message_id, is_unique_id=True)
        return for_line(ReceivedMessage(record, MessageQueue(topic, "", record.queue_id)))

    async def _queried(self, admin: Admin, topic: str, key: str) -> list[Row]:
        records = await admin.query_messages(topic, key)
        return [
            for_line(ReceivedMessage(record, MessageQueue(topic, "", record.queue_id)))
            for record in records
        ]


def push_settings(command: Command) -> Row:
    settings: Row = {
        "model": command.text("model", "CLUSTERING"),
        "orderly": command.flag("orderly"),
        "from_where": command.text("start_at", "CONSUME_FROM_FIRST_OFFSET"),
        "batch_size": command.number("batch", 1),
        "max_reconsume_times": command.number("retries_max", -1),
    }
    if "rebalance_ms" in command.fields:
        settings["rebalance_interval_ms"] = command.number("rebalance_ms")
    return settings


async def serve() -> None:
    driver = Driver()
    emit({"event": "ready"})
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        task = loop.create_task(driver.answer(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    asyncio.run(serve())
