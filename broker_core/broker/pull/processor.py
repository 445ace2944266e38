"""PULL_MESSAGE and LITE_PULL_MESSAGE: check, read, then answer or hold the request."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from broker_core.access.asking_account import asking_account, note_account
from broker_core.broker.pull.pending import PendingPulls
from broker_core.broker.pull.slave_reads import RETURN_MS, SlaveReads
from broker_core.broker.request_fields import (
    optional_number,
    required_number,
    required_text,
)
from broker_core.broker.retry_owners import RetryOwners
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.new_groups import NewGroups
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.fields import I32_MAX
from broker_core.codec.sql.filter import SqlFilter
from broker_core.codec.wire.bodies.group_config import GroupConfig
from broker_core.codec.wire.bodies.subscription_data import (
    ALL_MESSAGES,
    SQL92,
    TAG,
    SubscriptionData,
    parse_tag_expression,
)
from broker_core.codec.wire.bodies.topic_config import PERM_READ, TopicConfig
from broker_core.codec.wire.hot_replies import pulled_reply
from broker_core.codec.wire.remoting_command import BINARY_HEADER, ONEWAY_FLAG, RemotingCommand
from broker_core.codec.wire.system_topics import refuses_pulls
from broker_core.codec.wire.topic_name import RETRY_TOPIC_PREFIX
from broker_core.errors import (
    GroupNotExist,
    InvalidArgument,
    InvalidSubscription,
    NoPermission,
    RemoteError,
    TopicNotExist,
)
from broker_core.protocol_codes import (
    PULL_COMMIT_OFFSET,
    PULL_HAS_SUBSCRIPTION,
    PULL_MAY_SUSPEND,
    GetStatus,
    RequestCode,
    ResponseCode,
)
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler, Result, handle_later
from broker_core.runtime.sized_cache import SizedCache
from broker_core.store.message_store import MessageStore
from broker_core.store.reads.filtered_read import RecordFilter
from broker_core.store.reads.message_reader import GetResult

# Longest hold; clients time out after half a minute.
SUSPEND_MS_MAX: Final = 300_000
TOO_MANY_HELD: Final = (
    "[OVERLOAD] too many pulls of this connection, address or account are held, try later"
)

_MOVED = ResponseCode.PULL_OFFSET_MOVED
_CODES: Final[Mapping[GetStatus, ResponseCode]] = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetStatus.OFFSET_TOO_SMALL: _MOVED,
    # The next two become PULL_OFFSET_MOVED unless the pull was for offset 0.
    GetStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_NOT_FOUND,
}


_OUTSIDE: Final = frozenset(status for status, code in _CODES.items() if code == _MOVED)
_EMPTY: Final = frozenset({GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE})


SyncHandler = Callable[[Connection, RemotingCommand], Result]


class Pull(NamedTuple):
    """One read: for whom, from where, and how much."""

    group: str
    topic: str
    queue_id: int
    offset: int
    count_max: int
    size_max: int
    tag_codes: frozenset[int] | None
    broker_id: int
    sql: RecordFilter | None = None
    slow_broker_id: int = 1
    verify: bool = True
    """False: the client verifies the records."""


class PullMessageProcessor:
    """Event loop only; never blocks. `pending` holds requests without an answer yet."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        stats: BrokerStats,
        pending: PendingPulls,
        slave_reads: SlaveReads,
        new_groups: NewGroups | None = None,
    ) -> None:
        """`new_groups` creates many groups with one write; without it each is one write."""
        self._slave_reads = slave_reads
        self._new_groups = new_groups
        self._config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._pending = pending
        self._retry_owners = RetryOwners(topics, groups, offsets)
        self._count_max = config.store.read_count_max
        self._size_max = config.store.read_size_max

    def reconfigure(self, config: BrokerConfig) -> None:
        """Apply live settings from the next pull on."""
        self._config = config

    def handlers(self) -> Mapping[int, Handler]:
        pull = self.with_group(self.pull)
        return {RequestCode.PULL_MESSAGE: pull, RequestCode.LITE_PULL_MESSAGE: pull}

    def with_group(self, handler: SyncHandler, default_group: str = "") -> SyncHandler:
        """`handler`, called when the group of its request is on disk.

        The table of groups is one file, so groups that come together share a write.
        """

        def handle(connection: Connection, command: RemotingCommand) -> Result:
            making = self._making(command.ext.get("consumerGroup") or default_group)
            if making is None:
                return handler(connection, command)
            # Read now: the next request of this connection may have another account.
            account = asking_account(connection)

            def go_on(made: asyncio.Future[None]) -> None:
                if connection.is_closed or made.cancelled():
                    return
                if account is not None:
                    note_account(connection, account)

                def handle_made(asking: Connection, asked: RemotingCommand) -> Result:
                    # Raises the failure of the write.
                    made.result()
                    return handler(asking, asked)

                handle_later(connection, command, handle_made)

            making.add_done_callback(go_on)
            return None

        return handle

    def _making(self, group: str) -> asyncio.Future[None] | None:
        if self._new_groups is None or not group:
            return None
        # A read that is refused creates no group.
        is_readable = self._config.broker_permission & PERM_READ
        return self._new_groups.make_group(group) if is_readable else None

    def pull(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Answer at once if possible, else hold the request."""
        ext = command.ext
        group_name = required_text(ext, "consumerGroup")
        topic_name = required_text(ext, "topic")
        queue_id = required_number(ext, "queueId", 0, I32_MAX)
        offset = required_number(ext, "queueOffset")
        flags = required_number(ext, "sysFlag", 0, I32_MAX)
        group, _ = self.readable(group_name, topic_name, queue_id)
        subscription = self._subscription(group_name, topic_name, flags, ext)
        codes = subscription.codes if subscription.tags else None
        pull = Pull(
            group_name,
            topic_name,
            queue_id,
            offset,
            min(max(required_number(ext, "maxMsgNums", 0, I32_MAX), 1), self._count_max),
            min(optional_number(ext, "maxMsgBytes", self._size_max, 1, I32_MAX), self._size_max),
            codes,
            group.broker_id,
            None if subscription.is_by_tag else self._sql(subscription, flags),
            group.broker_id_when_slow,
        )
        if flags & PULL_COMMIT_OFFSET and not self._slave_reads.is_slave():
            commit = optional_number(ext, "commitOffset", -1)
            if commit >= 0:
                self._offsets.commit(group_name, topic_name, queue_id, commit)
        if self._offsets.has_resets:
            target = self._offsets.take_reset(group_name, topic_name, queue_id, offset)
            if target is not None:
                bounds = self._store.offsets(topic_name, queue_id)
                moved = GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, target, *bounds)
                self._answer(connection, command, pull, moved)
                return None
        suspend_ms = 0
        if flags & PULL_MAY_SUSPEND:
            suspend_ms = self.hold_ms(optional_number(ext, "suspendTimeoutMillis", 0))
        self.serve(connection, command, pull, suspend_ms)
        return None

    def hold_ms(self, asked_ms: int) -> int:
        """How long a request may be held that asks for this many ms."""
        if self._config.long_polling_enable:
            return asked_ms
        return min(asked_ms, self._config.short_polling_ms)

    def readable(
        self, group_name: str, topic_name: str, queue_id: int
    ) -> tuple[GroupConfig, TopicConfig]:
        """The group and topic of a pull; raises if it is not allowed."""
        if not self._config.broker_permission & PERM_READ:
            raise NoPermission(ResponseCode.NO_PERMISSION, "this broker is not readable")
        group = self._groups.find_or_create(group_name)
        if group is None:
            raise GroupNotExist(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group_name:.130} does not exist: create it first",
            )
        if not group.consume_enable:
            raise NoPermission(ResponseCode.NO_PERMISSION, f"group {group_name} may not consume")
        topic = self._topics.find(topic_name) or self._slave_reads.unknown_topic(topic_name)
        if topic is None:
            raise TopicNotExist(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {topic_name:.130} does not exist"
            )
        if not topic.perm & PERM_READ or refuses_pulls(topic_name):
            raise NoPermission(
                ResponseCode.NO_PERMISSION, f"the topic {topic_name} is not readable"
            )
        if queue_id >= topic.read_queue_count:
            raise InvalidArgument(
                f"queueId is {queue_id}: {topic_name} has the queues 0 to "
                f"{topic.read_queue_count - 1}"
            )
        return group, topic

    def filter_of(
        self, topic: str, kind: str, text: str
    ) -> tuple[frozenset[int] | None, SqlFilter | None]:
        """Tag codes or SQL filter of an expression in a request; neither for all messages."""
        if kind == TAG:
            subscription = _parsed(text)
            return (subscription.codes if subscription.tags else None), None
        subscription = SubscriptionData(topic, text, expression_type=kind)
        return None, self._sql(subscription, PULL_HAS_SUBSCRIPTION)

    def serve(
        self, connection: Connection, command: RemotingCommand, pull: Pull, suspend_ms: int
    ) -> None:
        """Answer, or hold for at most `suspend_ms`."""
        if pull.topic.startswith(RETRY_TOPIC_PREFIX):
            pull = pull._replace(sql=self._retry_owners.filter(pull.group, pull.topic, pull.sql))
        result = self._read(pull)
        if suspend_ms > 0 and self._code_of(pull, result) == ResponseCode.PULL_NOT_FOUND:
            if self._slave_reads.sends_back():
                suspend_ms = min(suspend_ms, RETURN_MS)
            retry = _HeldRetry(self, connection, command, pull)
            key = (pull.topic.encode(), pull.queue_id)
            hold_ms = min(suspend_ms, SUSPEND_MS_MAX)
            if not self._pending.hold(connection, command.opaque, key, hold_ms, retry):
                # Not "nothing found": some clients would retry in a tight loop.
                connection.send(command.reply(ResponseCode.SYSTEM_BUSY, TOO_MANY_HELD))
        else:
            self._answer(connection, command, pull, result)

    def _subscription(
        self, group: str, topic: str, flags: int, ext: Mapping[str, str]
    ) -> SubscriptionData:
        if flags & PULL_HAS_SUBSCRIPTION:
            kind, text = ext.get("expressionType") or TAG, ext.get("subscription", ALL_MESSAGES)
            if kind != TAG:
                return SubscriptionData(topic, text, expression_type=kind)
            registered = self._clients.subscription(group, topic)
            if registered is None or registered.is_by_tag or registered.sub_string != text:
                return _parsed(text)
            # Go clients always send TAG; their heartbeat has the real type.
            return registered
        found = self._clients.subscription(group, topic)
        if found is None:
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"group {group} has no subscription to {topic} here: its heartbeat brings it",
            )
        # Sending everything is safe: clients filter by tags again.
        if not found.matches_all and found.version < optional_number(ext, "subVersion", 0):
            raise RemoteError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of {group} to {topic} is older than the request's",
            )
        return found

    def _sql(self, subscription: SubscriptionData, flags: int) -> SqlFilter:
        kind = subscription.expression_type
        if kind != SQL92 or not self._config.property_filter_enable:
            remedy = "set enablePropertyFilter=true" if kind == SQL92 else "use TAG or SQL92"
            raise RemoteError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker does not filter by {kind[:20]}: {remedy}",
            )
        found = _compiled(subscription.sub_string)
        if isinstance(found, SqlFilter):
            return found
        if flags & PULL_HAS_SUBSCRIPTION:
            raise InvalidSubscription(found)
        # The heartbeat that brought it was accepted; clients know this code for a bad expression.
        raise RemoteError(ResponseCode.FILTER_DATA_NOT_EXIST, found)

    def _read(self, pull: Pull) -> GetResult:
        return self._store.get(
            pull.topic,
            pull.queue_id,
            pull.offset,
            pull.count_max,
            size_max=pull.size_max,
            tag_codes=pull.tag_codes,
            record_filter=pull.sql,
            verify=pull.verify,
        )

    def _answer(
        self, connection: Connection, command: RemotingCommand, pull: Pull, result: GetResult
    ) -> None:
        code = self._code_of(pull, result)
        following = result.next_offset
        reads = self._slave_reads
        wanted = (pull.broker_id, pull.slow_broker_id)
        suggested = reads.suggested_id(pull.topic, pull.queue_id, result, *wanted)
        if code != ResponseCode.SUCCESS and reads.is_slave():
            code, following = self._at_slave(pull, result, code)
        if code == ResponseCode.SUCCESS:
            size = len(result.records)
            self._stats.got(pull.group, pull.topic, result.message_count, size)
            if self._stats.tallies is not None:
                self._stats.tallies.pulled(pull.group, pull.topic, pull.queue_id, following)
        bounds = (result.min_offset, result.max_offset)
        if command.serialize_type == BINARY_HEADER or command.flag & ONEWAY_FLAG:
            ext = {
                "nextBeginOffset": str(following),
                "minOffset": str(bounds[0]),
                "maxOffset": str(bounds[1]),
                "suggestWhichBrokerId": str(suggested),
            }
            connection.send(command.reply(code, None, ext, result.records))
            return
        opaque = command.opaque
        head = pulled_reply(opaque, code, following, bounds, suggested, len(result.records))
        connection.send_reply(opaque, head, result.records)

    def _at_slave(
        self, pull: Pull, result: GetResult, code: ResponseCode
    ) -> tuple[ResponseCode, int]:
        """The answer of a slave, and where the consumer continues."""
        if _is_outside(pull, result) and self._slave_reads.keeps_offset():
            return ResponseCode.PULL_RETRY_IMMEDIATELY, pull.offset
        if self._slave_reads.sends_back():
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
        return code, result.next_offset

    def _code_of(self, pull: Pull, result: GetResult) -> ResponseCode:
        if not _is_outside(pull, result):
            return _CODES[result.status]
        # A slave holds a pull past its end, and never corrects the offset.
        is_kept = self._slave_reads.keeps_offset()
        return ResponseCode.PULL_NOT_FOUND if is_kept else _MOVED

    def retry(
        self, connection: Connection, command: RemotingCommand, pull: Pull, final: bool
    ) -> int | None:
        """Retry a held pull: None when it has answered, else the next offset to read."""
        result = self._read(pull)
        code = self._code_of(pull, result)
        if not final and code == ResponseCode.PULL_NOT_FOUND:
            return pull.offset
        looked_at_all = result.next_offset >= result.max_offset
        if not final and looked_at_all and result.status is GetStatus.NO_MATCHED_MESSAGE:
            # Nothing for this filter: continue after what was read.
            return result.next_offset
        self._answer(connection, command, pull, result)
        return None


class _HeldRetry:
    """The retries of one held pull. Remembers how far its filter has read."""

    __slots__ = ("_again", "_pull")

    def __init__(
        self,
        processor: PullMessageProcessor,
        connection: Connection,
        command: RemotingCommand,
        pull: Pull,
    ) -> None:
        self._again = partial(processor.retry, connection, command)
        self._pull = pull

    def __call__(self, final: bool) -> bool:
        following = self._again(self._pull, final)
        if following is None:
            return True
        self._pull = self._pull._replace(offset=following)
        return False


def _is_outside(pull: Pull, result: GetResult) -> bool:
    return result.status in _OUTSIDE or (pull.offset != 0 and result.status in _EMPTY)


def _parsed(text: str) -> SubscriptionData:
    """The tags of an expression, independent of the topic."""
    return TAG_LISTS.get(text, _tags_of)


def _tags_of(text: str) -> SubscriptionData:
    return parse_tag_expression("", text)


def _tags_size(text: str, parsed: SubscriptionData) -> int:
    return _ENTRY_SIZE + 2 * sys.getsizeof(text) + _TAG_SIZE * len(parsed.tags)


def _compiled(expression: str) -> SqlFilter | str:
    """The filter of an expression, or its error: both are cached."""
    return FILTERS.get(expression, _compile)


def _compile(expression: str) -> SqlFilter | str:
    try:
        return SqlFilter(expression)
    except InvalidSubscription as error:
        return str(error)


def _filter_size(expression: str, found: SqlFilter | str) -> int:
    steps = found.cost if isinstance(found, SqlFilter) else 0
    return _ENTRY_SIZE + 2 * sys.getsizeof(expression) + _STEP_SIZE * steps


# Parsed expressions of pulls. The sizes are estimates of an entry, a tag and a step.
CACHE_SIZE_MAX: Final = 8 << 20
_ENTRY_SIZE: Final = 500
_TAG_SIZE: Final = 200
_STEP_SIZE: Final = 500
TAG_LISTS: Final = SizedCache[str, SubscriptionData](CACHE_SIZE_MAX, _tags_size)
FILTERS: Final = SizedCache[str, "SqlFilter | str"](CACHE_SIZE_MAX, _filter_size)
