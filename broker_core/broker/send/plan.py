"""Plans a send: checks, queue, redirection to another topic, and the bytes to append.

Reads the tables; nothing is stored before `SendPlan.append`. The order of the checks and their
answers are RocketMQ's.
"""

from __future__ import annotations

import dataclasses
from array import array
from asyncio import Future
from collections.abc import Callable
from random import Random
from typing import Final

from broker_core.broker.retry_policy import resend_is_dead, times_max
from broker_core.broker.scheduled.delayed_message import StoredForm, delay_level, delayed_form
from broker_core.broker.scheduled.timer_intake import Recalled
from broker_core.broker.scheduled.timer_message import (
    TIMER_DELETE_KEY,
    TimerRules,
    names_timer,
    out_ms,
    timer_form,
)
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.new_topics import NewTopics
from broker_core.broker.tables.queue_locks import QueueLocks
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.broker.transactions.half_message import (
    HALF_QUEUE,
    NO_HALF,
    OP_TEXT,
    half_changes,
    is_half,
)
from broker_core.codec.native import measure_batch, split_client_batch
from broker_core.codec.records import message_properties as names
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.message_properties import change_properties, decode_properties
from broker_core.codec.records.record_layout import TRANSACTION_BITS
from broker_core.codec.wire.bodies.topic_config import PERM_WRITE, UNIT_FLAG, TopicConfig
from broker_core.codec.wire.pop_handle import NOT_POPPED
from broker_core.codec.wire.recall_handle import RecallHandle
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.send_request import SendRequest
from broker_core.codec.wire.topic_name import (
    RETRY_TOPIC_PREFIX,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
    topic_name_problem,
)
from broker_core.errors import (
    GroupNotExist,
    InvalidArgument,
    MalformedBatch,
    NoPermission,
    RemoteError,
    TopicNotExist,
)
from broker_core.protocol_codes import ResponseCode
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.put_result import PutResult

# Clients older than 3.4.9 send no limit.
_SENDS_RETRY_LIMIT: Final = 121
_ENDING: Final = "\x02"


@dataclasses.dataclass(slots=True)
class SendPlan:
    """One append and the facts for its answer."""

    append: Callable[[MessageStore, bytes], tuple[PutResult, ...]]
    answered_queue_id: int
    counted_topic: str
    unique_key: str = ""
    waits: bool = True
    message_count: int = 1
    body_size: int = 0
    # Whether this send created its topic, so that the name servers may not know it yet.
    made_topic: bool = False
    # Handle that recalls a timer message.
    recall_handle: str = ""


class SendPlanner:
    """Has no state of its own. Every stored property text ends with `suffix`."""

    def __init__(
        self,
        *,
        topics: TopicTable,
        groups: GroupTable,
        locks: QueueLocks,
        broker_permission: int,
        suffix_properties: dict[str, str],
        delay_level_max: int,
        message_size_max: int,
        new_unique_key: Callable[[], str],
        reject_transactions: bool = False,
        timer_rules: TimerRules | None = None,
        now_ms: Callable[[], int] = lambda: 0,
        recall: Callable[[str, str, int], Recalled] | None = None,
        broker_name: str = "",
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._broker_permission = broker_permission
        self._suffix_properties = suffix_properties
        self._delay_level_max = delay_level_max
        self._message_size_max = message_size_max
        self._new_unique_key = new_unique_key
        self._reject_transactions = reject_transactions
        self._timer_rules = timer_rules or TimerRules(False, 0)
        self._now_ms = now_ms
        self._recall = recall
        self._broker_name = broker_name
        text = "".join(f"{name}\x01{value}\x02" for name, value in suffix_properties.items())
        self.suffix = text.encode()

    def reconfigure(self, broker_permission: int, reject_transactions: bool) -> None:
        """Other settings from the next send on."""
        self._broker_permission = broker_permission
        self._reject_transactions = reject_transactions

    def new_topic(self, request: SendRequest, new_topics: NewTopics) -> Future[None] | None:
        """The creation of the topic of a request, if it is missing and may be created."""
        name = request.topic
        if (
            self._topics.find(name) is not None
            or name.startswith("%")
            or topic_name_problem(name) is not None
            or not self._broker_permission & PERM_WRITE
        ):
            return None
        sys_flag = UNIT_FLAG if request.is_unit else 0
        count = request.default_queue_count
        return new_topics.make(name, request.default_topic, count, sys_flag)

    def plan(self, request: SendRequest, command: RemotingCommand, random: Random) -> SendPlan:
        """Plan one message."""
        version = self._topics.version
        topic = self._writable_topic(request)
        name, queue_id = topic.name, _chosen_queue(request, topic, random)
        pairs = decode_properties(request.properties.encode())
        changes = {"POP_CK": "", **self._suffix_properties}
        if name.startswith(RETRY_TOPIC_PREFIX):
            changes |= NOT_POPPED
        unique = pairs.get(names.UNIQ_KEY, "")
        if not unique:
            unique = changes[names.UNIQ_KEY] = self._new_unique_key()
        level = delay_level(pairs.get(names.DELAY, "0"))
        if name.startswith(RETRY_TOPIC_PREFIX) and self._is_dead(request, command.version):
            dead = self._topics.create_dlq(name[len(RETRY_TOPIC_PREFIX) :])
            name, queue_id, level = dead.name, 0, 0
            changes[names.DELAY] = ""
        half = is_half(pairs, name, request.reconsume_times, level)
        if half:
            self._refuse_transactions(name)
            changes |= half_changes(pairs, request.group, name, queue_id, unique)
        due_ms = self._timer_rules.due_ms(pairs, self._now_ms()) if level <= 0 else None
        if due_ms is not None and not half and TIMER_DELETE_KEY in pairs:
            return self._recall_plan(name, queue_id, pairs[TIMER_DELETE_KEY], due_ms)
        text = change_properties(request.properties.encode(), changes)
        stored = StoredForm(name, queue_id, text)
        handle = ""
        if half:
            # The time is applied at the commit; here it is only validated.
            stored = StoredForm(TRANSACTION_HALF_TOPIC, HALF_QUEUE, text)
        elif level > 0:
            stored = delayed_form(name, queue_id, text, level, self._delay_level_max)
        elif due_ms is not None:
            stored = timer_form(name, queue_id, text, due_ms)
            if not name.startswith("%"):
                handle = RecallHandle(name, self._broker_name, out_ms(due_ms), unique).encode()
        body = command.body

        def append(store: MessageStore, born_host: bytes) -> tuple[PutResult, ...]:
            if half and store.log_range[1] == 0:
                _begin_log(store, request.born_timestamp)
            result = store.append_text(
                *stored[:2],
                body,
                stored.text,
                flag=request.flag,
                sys_flag=_without_transaction(request.sys_flag),
                born_timestamp=request.born_timestamp,
                born_host=born_host,
                reconsume_times=request.reconsume_times,
            )
            return (result,)

        waits = pairs.get(names.WAIT, "").lower() != "false"
        made = self._topics.version != version
        counted = stored.topic if half else name
        return SendPlan(append, queue_id, counted, unique, waits, 1, len(body), made, handle)

    def _recall_plan(self, topic: str, queue_id: int, key: str, due_ms: int) -> SendPlan:
        """Plan a recall message, as RocketMQ's brokers send it to themselves."""
        recall = self._recall
        assert recall is not None, "a broker that takes timer messages can recall them"
        unique = key.removeprefix(f"{topic}+")
        return SendPlan(
            lambda store, host: (recall(topic, unique, due_ms).result,), queue_id, topic, unique
        )

    def plan_batch(
        self, request: SendRequest, body: bytes | memoryview, random: Random
    ) -> SendPlan:
        """Plan a batch: one queue, consecutive offsets. One invalid message rejects all."""
        version = self._topics.version
        topic = self._batch_topic(request)
        queue_id = _chosen_queue(request, topic, random)
        if len(body) > self._message_size_max:
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has {len(body)} bytes, maxMessageSize is {self._message_size_max}",
            )
        queue = (topic.name.encode(), queue_id)
        batches = split_batch(request.sys_flag, request.born_timestamp, body, queue, self.suffix)
        waits = property_value(request.properties, names.WAIT) != "false"
        return SendPlan(
            lambda store, host: append_batches(store, batches, host, together=True),
            queue_id,
            topic.name,
            property_value(request.properties, names.UNIQ_KEY),
            waits,
            sum(batch.count for batch in batches),
            len(body),
            self._topics.version != version,
        )

    def plan_bulk(
        self, request: SendRequest, body: bytes | memoryview, random: Random
    ) -> tuple[int, list[ColumnBatch]]:
        """Plan a bulk send of our client, of any size: its queue and its columns."""
        topic = self._batch_topic(request)
        queue_id = _chosen_queue(request, topic, random)
        queue = (topic.name.encode(), queue_id)
        return queue_id, split_batch(request.sys_flag, request.born_timestamp, body, queue, b"")

    def check_queue(self, request: SendRequest) -> None:
        """Raise what a batch to this queue would raise; for staged records."""
        _chosen_queue(request, self._batch_topic(request), Random(0))

    # Checks

    def _batch_topic(self, request: SendRequest) -> TopicConfig:
        topic = self._writable_topic(request)
        if topic.name.startswith(RETRY_TOPIC_PREFIX):
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be sent to a retry topic"
            )
        return topic

    def _writable_topic(self, request: SendRequest) -> TopicConfig:
        name = request.topic
        problem = topic_name_problem(name)
        if problem is not None:
            raise InvalidArgument(problem)
        if self._topics.refuses_sends(name):
            raise NoPermission(
                ResponseCode.NO_PERMISSION, f"the topic {name} is for the broker's own use"
            )
        if not self._broker_permission & PERM_WRITE:
            raise NoPermission(ResponseCode.NO_PERMISSION, "this broker is not writable")
        topic = self._topics.find(name) or self._made_topic(request)
        if topic is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {name} does not exist and automatic creation is off: create it first",
            )
        if not topic.perm & PERM_WRITE:
            raise NoPermission(ResponseCode.NO_PERMISSION, f"the topic {name} is not writable")
        return topic

    def _made_topic(self, request: SendRequest) -> TopicConfig | None:
        sys_flag = UNIT_FLAG if request.is_unit else 0
        if request.topic.startswith(RETRY_TOPIC_PREFIX):
            group = request.topic[len(RETRY_TOPIC_PREFIX) :]
            known = self._groups.find(group)
            if known is None:
                raise GroupNotExist(
                    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no such group: {group}"
                )
            return self._topics.create_retry(group, max(known.retry_queue_count, 1), sys_flag)
        return self._topics.create_on_send(
            request.topic, request.default_topic, request.default_queue_count, sys_flag
        )

    def _refuse_transactions(self, topic: str) -> None:
        if self._reject_transactions:
            raise NoPermission(
                ResponseCode.NO_PERMISSION,
                "this broker does not take transaction messages (rejectTransactionMessage)",
            )
        if topic.startswith("%"):
            raise RemoteError(
                ResponseCode.MESSAGE_ILLEGAL, f"a transaction cannot be for the topic {topic}"
            )

    def _is_dead(self, request: SendRequest, version: int) -> bool:
        """Whether a message that a consumer sends to its retry topic has used up its retries."""
        group = request.topic[len(RETRY_TOPIC_PREFIX) :]
        config = self._groups.find(group)
        if config is None:
            raise GroupNotExist(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"no such group: {group}"
            )
        asked = request.reconsume_times_max if version >= _SENDS_RETRY_LIMIT else None
        limit = times_max(config.retry_times_max, asked)
        return resend_is_dead(
            request.reconsume_times, limit, is_ordered=self._locks.has_locks(group)
        )


def _without_transaction(sys_flag: int) -> int:
    """Remove transaction bits that a client has set: a message with them would be acknowledged and
    never shown to consumers.
    """
    return sys_flag & ~TRANSACTION_BITS


def _begin_log(store: MessageStore, born_timestamp: int) -> None:
    """Append a record before the first half message: position 0 means "none" in a commit."""
    store.append_text(
        TRANSACTION_OP_TOPIC,
        HALF_QUEUE,
        NO_HALF,
        OP_TEXT,
        born_timestamp=born_timestamp,
        born_host=store.store_host,
    )


def split_batch(
    sys_flag: int,
    born_timestamp: int,
    body: bytes | memoryview,
    queue: tuple[bytes, int],
    suffix: bytes,
    *,
    born_host: bytes = b"",
    store_host: bytes = b"",
) -> list[ColumnBatch]:
    """The batch as columns; a message with other flags than its predecessor starts a new one."""
    try:
        count, flags, bodies, body_offsets, texts, text_offsets, has_timer = split_client_batch(
            body, suffix
        )
    except MalformedBatch as error:
        raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"batch: {error}") from error
    if count == 0:
        raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    if has_timer and names_timer(texts):
        raise RemoteError(
            ResponseCode.MESSAGE_ILLEGAL, "timer messages cannot be in a batch: send them singly"
        )
    values = array("i", flags)
    starts = [0]
    if flags != flags[:4] * count:
        starts += [row for row in range(1, count) if values[row] != values[row - 1]]
    ends = [*starts[1:], count]
    return [
        ColumnBatch(
            end - start,
            (queue,),
            None,
            (bodies, memoryview(body_offsets)[8 * start : 8 * end + 8], 8),
            None,
            None,
            (texts, memoryview(text_offsets)[8 * start : 8 * end + 8], 8),
            values[start],
            _without_transaction(sys_flag),
            born_timestamp,
            born_host,
            store_host,
        )
        for start, end in zip(starts, ends, strict=True)
    ]


def append_batches(
    store: MessageStore, batches: list[ColumnBatch], born_host: bytes, *, together: bool
) -> tuple[PutResult, ...]:
    """Append in order; stops after the first failure, which is the last result.

    Invalid batches are found before the first append; a disk that fills up meanwhile is not.
    """
    results = []
    addressed = [
        batch._replace(born_host=born_host, store_host=store.store_host) for batch in batches
    ]
    try:
        for batch in addressed[1:]:
            measure_batch(batch)
    except MalformedBatch as error:
        raise RemoteError(ResponseCode.MESSAGE_ILLEGAL, f"batch: {error}") from error
    for batch in addressed:
        results.append(store.append_batch(batch, together=together))
        if not results[-1].ok:
            break
    return tuple(results)


def merged(results: tuple[PutResult, ...]) -> PutResult:
    """The results of one request as one: the first position, the last status."""
    first, last = results[0], results[-1]
    if first is last:
        return first
    return last._replace(
        position=first.position,
        queue_offset=first.queue_offset,
        message_count=sum(result.message_count for result in results),
    )


def property_value(text: str, name: str) -> str:
    """One value of a property text; empty when missing."""
    start = 0 if text.startswith(f"{name}\x01") else text.find(f"\x02{name}\x01") + 1
    if start == 0 and not text.startswith(f"{name}\x01"):
        return ""
    return text[start + len(name) + 1 :].partition(_ENDING)[0]


def _chosen_queue(request: SendRequest, topic: TopicConfig, random: Random) -> int:
    if request.queue_id < 0:
        return random.randrange(max(topic.write_queue_count, 1))
    count = max(topic.read_queue_count, topic.write_queue_count)
    if request.queue_id >= count:
        raise InvalidArgument(
            f"queueId is {request.queue_id}: {topic.name} has the queues 0 to {count - 1}"
        )
    return request.queue_id
