"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: from a request to a stored message.

A plain message or batch (see `codec/wire/plain_send.py`) to a known topic takes the fast path: its
property text is stored unchanged and the answer is assembled from constants. Everything else
(retries, delays, binary headers, hooks, errors) goes through `SendPlan`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from random import Random
from typing import Final

from broker_core.broker.client_address import BORN_HOST, born_host
from broker_core.broker.send.bursts import SendBursts
from broker_core.broker.send.hooks import SendContext, SendHooks, SendOutcome
from broker_core.broker.send.plan import (
    SendPlan,
    SendPlanner,
    merged,
    property_value,
    split_batch,
)
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.records.record_layout import TRANSACTION_BITS
from broker_core.codec.wire.bodies.topic_config import PERM_WRITE
from broker_core.codec.wire.hot_replies import sent_reply
from broker_core.codec.wire.plain_send import PlainBatch, PlainSend
from broker_core.codec.wire.remoting_command import JSON_HEADER, RemotingCommand
from broker_core.codec.wire.send_request import (
    LONG_NAMES,
    SHORT_NAMES,
    SendRequest,
    parse_send_request,
)
from broker_core.config import RemotingLimits
from broker_core.protocol_codes import PutStatus, RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

Answer = RemotingCommand | None | Awaitable[RemotingCommand | None]

# Looked up once: access to an enumeration member is slow.
_PUT_OK: Final = PutStatus.PUT_OK
_NAMES_MAX: Final = 100_000


class SendMessageProcessor:
    """Event loop only; never blocks."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        planner: SendPlanner,
        stats: BrokerStats,
        hooks: SendHooks,
        routes_announced: Callable[[], Awaitable[object]],
        new_topics: NewTopics,
        limits: RemotingLimits,
        random: Random | None = None,
    ) -> None:
        self._new_topics = new_topics
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self._store = store
        self._is_async = store.is_async
        self._topics = topics
        self._planner = planner
        self._stats = stats
        self._hooks = hooks
        self._routes_announced = routes_announced
        self._random = random or Random()
        trace = "true" if config.trace_on else "false"
        self._answer_fields = {"MSG_REGION": config.region_id, "TRACE_ON": trace}
        self._answer_constants = f'"MSG_REGION":"{config.region_id}","TRACE_ON":"{trace}",'.encode()
        self.bursts = SendBursts(
            store=store,
            topics=topics,
            stats=stats,
            hooks=hooks,
            suffix=planner.suffix,
            answer_constants=self._answer_constants,
            limits=limits,
            message_size_max=config.store.message_size_max,
            is_writable=self._is_writable,
        )
        self._writes = store.writes
        self._suffix = planner.suffix
        self._message_size_max = config.store.message_size_max
        self._id_prefix = store.store_host.hex().upper().encode()
        # Topics seen so far that need the planned path.
        self._not_plain = _NotPlainTopics(topics)
        # New topic -> done when the last send that waits for it is stored
        self._last_waiting: dict[str, asyncio.Future[None]] = {}

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply the broker's write permission."""
        self._is_writable = bool(config.broker_permission & PERM_WRITE)
        self.bursts.reconfigure(is_writable=self._is_writable)

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send_long_names,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send_batch,
        }

    def send(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_MESSAGE_V2."""
        if type(command) is not PlainSend or self._hooks or not self._is_writable:
            return self._send_planned(connection, command, SHORT_NAMES)
        opaque, _, topic, queue_id, sys_flag, born, flag, text, unique = command.fields
        config = self._topics.find(topic)
        if (
            config is None
            or not config.perm & PERM_WRITE
            or queue_id >= config.write_queue_count
            or sys_flag & TRANSACTION_BITS
            or topic in self._not_plain
            or topic in self._last_waiting
        ):
            return self._send_planned(connection, command, SHORT_NAMES)
        writes = self._writes
        host = connection.attributes.get(BORN_HOST) or born_host(connection)
        result = writes.append_text(topic, queue_id, command.body, text, flag, sys_flag, born, host)
        if result[0] is not _PUT_OK:
            return command.reply(result.status.response_code, result.remark)
        self._stats.put(topic, 1, result[3] - result[2])
        self.bursts.note_ready(topic, config.write_queue_count)
        if self._is_async:
            self._answer_one(connection, opaque, queue_id, unique, result, _PUT_OK)
        else:
            writes.when_acknowledged(
                result, partial(self._answer_one, connection, opaque, queue_id, unique, result)
            )
        return None

    def send_long_names(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_MESSAGE."""
        return self._send_planned(connection, command, LONG_NAMES)

    def send_batch(self, connection: Connection, command: RemotingCommand) -> Answer:
        """SEND_BATCH_MESSAGE."""
        if type(command) is not PlainBatch or self._hooks or not self._is_writable:
            return self._send_planned(connection, command, SHORT_NAMES, is_batch=True)
        result = self._append_batch(connection, command)
        if result is None:
            return self._send_planned(connection, command, SHORT_NAMES, is_batch=True)
        if self._is_async:
            self._answer_batch(connection, command, result, _PUT_OK)
        else:
            self._writes.when_acknowledged(
                result, partial(self._answer_batch, connection, command, result)
            )
        return None

    # Fast path of a batch

    def _append_batch(self, connection: Connection, command: PlainBatch) -> PutResult | None:
        """None when the batch needs the planned path; nothing is stored then."""
        _, _, topic, queue_id, sys_flag, born, _, _, _ = command.fields
        config = self._topics.find(topic)
        if (
            config is None
            or not config.perm & PERM_WRITE
            or queue_id >= config.write_queue_count
            or len(command.body) > self._message_size_max
            or topic in self._not_plain
            or topic in self._last_waiting
        ):
            return None
        writes = self._writes
        batches = split_batch(
            sys_flag,
            born,
            command.body,
            (topic.encode(), queue_id),
            self._suffix,
            born_host=connection.attributes.get(BORN_HOST) or born_host(connection),
            store_host=writes.store_host,
        )
        if len(batches) != 1:
            return None
        result = writes.append_rows_together(batches[0])
        if result is not None:
            self._stats.put(topic, result[5], result[3] - result[2])
        return result

    def _answer_batch(
        self, connection: Connection, command: PlainBatch, result: PutResult, status: PutStatus
    ) -> None:
        fields = command.fields
        if status is not _PUT_OK:
            key = fields[8].decode()
            connection.send(self._reply(command, fields[3], key, (result,), status, None))
            return
        connection.send_reply(
            command.opaque,
            sent_reply(
                command.opaque,
                self._answer_constants,
                self._store.message_ids(result).encode(),
                fields[3],
                result[4],
                fields[8],
            ),
        )

    # Answers of the fast path

    def _answer_one(
        self,
        connection: Connection,
        opaque: int,
        queue_id: int,
        unique: bytes,
        result: PutResult,
        status: PutStatus,
    ) -> None:
        if status is not _PUT_OK:
            request = RemotingCommand(RequestCode.SEND_MESSAGE_V2, opaque=opaque)
            key = unique.decode()
            connection.send(self._reply(request, queue_id, key, (result,), status, None))
            return
        connection.send_reply(
            opaque,
            sent_reply(
                opaque,
                self._answer_constants,
                b"%b%016X" % (self._id_prefix, result.position),
                queue_id,
                result.queue_offset,
                unique,
            ),
        )

    # Planned path

    def _send_planned(
        self,
        connection: Connection,
        command: RemotingCommand,
        names: tuple[str, ...],
        *,
        is_batch: bool = False,
        is_new: bool = False,
    ) -> Answer:
        request = parse_send_request(command.ext, names)
        if not is_new:
            making = self._planner.new_topic(request, self._new_topics)
            before = self._last_waiting.get(request.topic)
            if making is not None or before is not None:
                stored = self._last_waiting[request.topic] = _new_future()
                waiting = asyncio.ensure_future(
                    self._send_to_new(
                        making, before, stored, request.topic, connection, command, names, is_batch
                    )
                )
                waiting.add_done_callback(lambda _: self._waited(request.topic, stored))
                return waiting
        if is_batch or request.is_batch:
            plan = self._planner.plan_batch(request, command.body, self._random)
        else:
            plan = self._planner.plan(request, command, self._random)
        context = None
        if self._hooks:
            context = _context(connection, request, plan)
            self._hooks.before(context)
        results = plan.append(self._store, born_host(connection))
        result = merged(results)
        unique = property_value(request.properties, "UNIQ_KEY") or plan.unique_key
        if result.status is not PutStatus.PUT_OK:
            self._tell(context, SendOutcome(result.status, -1, ""))
            return command.reply(result.status.response_code, result.remark)
        size = result.end_position - result.position
        self._stats.put(plan.counted_topic, result.message_count, size)
        if plan.made_topic or is_new:
            return self._answer_when_routed(command, plan, unique, results, context)
        answer = partial(self._answer_planned, connection, command, plan, unique, results, context)
        if plan.waits:
            self._writes.when_acknowledged(result, answer)
        else:
            answer(PutStatus.PUT_OK)
        return None

    async def _send_to_new(
        self,
        making: Awaitable[None] | None,
        before: asyncio.Future[None] | None,
        stored: asyncio.Future[None],
        topic: str,
        connection: Connection,
        command: RemotingCommand,
        names: tuple[str, ...],
        is_batch: bool,
    ) -> RemotingCommand | None:
        """Store to a topic once it is on disk, in the order of the requests.

        A send that arrives while earlier ones still wait for the topic waits as well.
        """
        if making is not None:
            # The future is shared with other sends.
            await asyncio.shield(making)
        if before is not None and not before.done():
            await asyncio.wait((before,))
        answer = self._send_planned(connection, command, names, is_batch=is_batch, is_new=True)
        self._waited(topic, stored)
        if answer is None or isinstance(answer, RemotingCommand):
            return answer
        return await answer

    def _waited(self, topic: str, stored: asyncio.Future[None]) -> None:
        """Stored, rejected or cancelled: the next send can continue."""
        if not stored.done():
            stored.set_result(None)
        if self._last_waiting.get(topic) is stored:
            del self._last_waiting[topic]

    async def _answer_when_routed(
        self,
        command: RemotingCommand,
        plan: SendPlan,
        unique: str,
        results: tuple[PutResult, ...],
        context: SendContext | None,
    ) -> RemotingCommand:
        """Wait for the route: a consumer may ask for it as soon as the producer is answered."""
        await self._routes_announced()
        result = merged(results)
        status = (await self._store.acknowledged(result)).status if plan.waits else result.status
        return self._planned_reply(command, plan, unique, results, status, context)

    def _answer_planned(
        self,
        connection: Connection,
        command: RemotingCommand,
        plan: SendPlan,
        unique: str,
        results: tuple[PutResult, ...],
        context: SendContext | None,
        status: PutStatus,
    ) -> None:
        if (
            status is not _PUT_OK
            or context is not None
            or plan.recall_handle
            or command.is_oneway
            or command.serialize_type != JSON_HEADER
            or not (unique.isascii() and unique.isalnum())
        ):
            connection.send(self._planned_reply(command, plan, unique, results, status, context))
            return
        ids = ",".join(map(self._store.message_ids, results))
        connection.send_reply(
            command.opaque,
            sent_reply(
                command.opaque,
                self._answer_constants,
                ids.encode(),
                plan.answered_queue_id,
                results[0].queue_offset,
                unique.encode(),
            ),
        )

    def _planned_reply(
        self,
        command: RemotingCommand,
        plan: SendPlan,
        unique: str,
        results: tuple[PutResult, ...],
        status: PutStatus,
        context: SendContext | None,
    ) -> RemotingCommand:
        queue_id = plan.answered_queue_id
        reply = self._reply(command, queue_id, unique, results, status, context)
        if plan.recall_handle and status.stored:
            reply.ext["recallHandle"] = plan.recall_handle
        return reply

    def _reply(
        self,
        command: RemotingCommand,
        queue_id: int,
        unique: str,
        results: tuple[PutResult, ...],
        status: PutStatus,
        context: SendContext | None,
    ) -> RemotingCommand:
        result = results[0]
        ids = ",".join(map(self._store.message_ids, results))
        self._tell(context, SendOutcome(status, result.queue_offset, ids))
        if not status.stored:
            return command.reply(status.response_code, f"not stored safely: {status.name}")
        ext = {
            **self._answer_fields,
            "msgId": ids,
            "queueId": str(queue_id),
            "queueOffset": str(result.queue_offset),
        }
        if unique:
            ext["transactionId"] = unique
        code = status.response_code
        return command.reply(code, None if code == ResponseCode.SUCCESS else status.name, ext)

    def _tell(self, context: SendContext | None, outcome: SendOutcome) -> None:
        if context is not None:
            self._hooks.after(context, outcome)


def _new_future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


class _NotPlainTopics(dict[str, bool]):
    """Caches which topic names need the planned path."""

    def __init__(self, topics: TopicTable) -> None:
        super().__init__()
        self._topics = topics

    def __contains__(self, name: object) -> bool:
        return self[str(name)]

    def __missing__(self, name: str) -> bool:
        if len(self) >= _NAMES_MAX:
            self.clear()
        special = name.startswith("%") or self._topics.refuses_sends(name)
        self[name] = special
        return special


def _context(connection: Connection, request: SendRequest, plan: SendPlan) -> SendContext:
    return SendContext(
        request.group,
        request.topic,
        plan.answered_queue_id,
        plan.message_count,
        plan.body_size,
        request.properties,
        connection.peer,
    )
