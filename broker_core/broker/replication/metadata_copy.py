"""Copies the tables of the master to a slave: topics, groups, progress, sinks.

The log comes over the replication link; this is everything else. A master of ours is asked every
second for changes; an Apache master every few seconds for whole tables, with Apache's codes.

Consumer offsets move forward only, unless the master reports a reset, and never past the end of a
queue as it is here. Offsets that consumers commit to the slave while the master is away are sent to
the master when it is back, so that no consumer restarts from an older offset.

Delay and transaction progress refer to records in the log. They are applied once the log here is
durable up to where the master's log ended when it reported them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.replication.metadata_format import (
    COMMITS_PER_REQUEST,
    TABLES,
    join_content,
    offset_table,
    parse_body,
    parse_changes,
    parse_offset_table,
    version_token,
)
from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.log_identity import LogIdentity
from broker_core.broker.tables.offset_table import OffsetChanges, OffsetKey, OffsetTable
from broker_core.broker.tables.request_modes import RequestModes
from broker_core.broker.tables.topic_table import TopicTable, adopt_topics
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.json.fields import object_field, whole_field, whole_number
from broker_core.codec.wire.bodies.group_config import parse_group_table
from broker_core.codec.wire.bodies.topic_config import parse_data_version, parse_topic_table
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_GROUP
from broker_core.errors import InvalidArgument, LimitReached, RemoteError, RmqError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.client import RemotingClient
from broker_core.runtime.cancelled import end_tasks
from broker_core.runtime.clock import Clock
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.message_store import MessageStore

_log = logging.getLogger(__name__)

SLAVE_COMMITS_FILE: Final = "config/slaveCommits.json"
CHANGES_INTERVAL_MS: Final = 1_000
WHOLE_TABLES_INTERVAL_MS: Final = 5_000
LINK_INTERVAL_MS: Final = 100
REQUEST_TIMEOUT_MS: Final = 10_000
# Topics beyond this number are forgotten and looked up again.
ARRIVED_MAX: Final = 100_000
_ENDED_KEPT: Final = 16
_PAGES_MAX: Final = 10_000


class CopiedTables(NamedTuple):
    """The copied tables. `delays` and `transactions` are read when this broker becomes a master."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    sinks: SinkBatches
    modes: RequestModes
    identity: LogIdentity
    delays: JsonTable
    transactions: JsonTable
    commits: JsonTable
    """Offsets that consumers committed here and the master does not have yet."""


class _HeldFile(NamedTuple):
    """A table to apply once the log here is durable up to `position`."""

    position: int
    content: dict[str, Any]


class _Ended(NamedTuple):
    """Offsets below which transactions have ended, to apply once the log here has their records."""

    position: int
    rounds: int
    offsets: dict[OffsetKey, int]


class SlaveMetadata:
    """Event loop only; files are written in a thread.

    `master_address()` is where the master serves clients, empty if unknown; `log_id()` identifies
    the log here; `may_copy()` says whether the master's log is being followed.
    """

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        tables: CopiedTables,
        master_address: Callable[[], str | None],
        log_id: Callable[[], str],
        clock: Clock,
        may_copy: Callable[[], bool] = lambda: True,
        client: RemotingClient | None = None,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._tables = tables
        self._master_address = master_address
        self._log_id = log_id
        self._clock = clock
        self._may_copy = may_copy
        self._client = client or RemotingClient()
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        # Tokens of the last answer of a master of ours; empty asks for everything.
        self._tokens: dict[str, str] = {}
        self._asked = ""
        # The master does not know our request code.
        self._is_apache = False
        self._committed_here = 0
        # Commits of earlier runs that the master lacks, and the content of the file.
        self._unsent: dict[OffsetKey, int] = {}
        self._saved_commits: dict[OffsetKey, int] = {}
        # Offsets past the end of their queue here.
        self._ahead: dict[OffsetKey, int] = {}
        self._held: dict[str, _HeldFile] = {}
        self._ended: list[_Ended] = []
        self._last_delays: dict[str, Any] | None = None
        # Topics with messages here: the master is asked at once about unknown ones.
        self._arrived: set[bytes] = set()
        self._is_failing = False
        self._has_warned = False
        self.copied_ms = 0
        """When the tables last equalled the master's; 0 for never."""

    def start(self) -> None:
        """Begin to copy."""
        offsets = self._tables.offsets
        self._committed_here = offsets.change_count
        offsets.changes_since(self._committed_here)
        stored = self._tables.commits.load()
        if stored is not None:
            self._unsent = dict(parse_offset_table(object_field(stored, "offsetTable")))
            self._saved_commits = dict(self._unsent)
        self._store.on_arrival(self._take_arrival)
        self._task = asyncio.ensure_future(self._run())
        self._task.add_done_callback(_report)

    async def stop(self) -> None:
        """Cancel the copy; tables that were copied stay."""
        if self._task is not None:
            await end_tasks((self._task,))
            self._task = None
        await self._client.close()

    @property
    def master_is_there(self) -> bool:
        """Whether the master answered the last request."""
        return self.copied_ms > 0 and not self._is_failing

    async def copy_once(self) -> bool:
        """Copy once; False when no master is known.

        Raises `RmqError` when the master does not answer or its answer is malformed.
        """
        address = self._master_address()
        if not address or not self._may_copy():
            self._asked = ""
            return False
        if address != self._asked:
            # The master may have restarted, with other tables.
            self._asked, self._is_apache = address, False
            self._tokens.clear()
        if not self._is_apache:
            await self._copy_changes(address)
        if self._is_apache:
            await self._copy_whole(address)
        self._try_ahead()
        await self._write_held()
        self.copied_ms = self._clock.wall_ms()
        return True

    async def finish(self) -> None:
        """Apply what is held: this broker replaces its master, which will send no more."""
        await self._write_held()
        adopt_topics(self._tables.topics, self._store)
        self._tables.sinks.settle()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                is_copied = await self.copy_once()
            except RmqError as error:
                is_copied = False
                if not self._has_warned:
                    self._has_warned = True
                    _log.warning("the tables of master %s cannot be copied: %s", self._asked, error)
                self._asked = ""
            self._note(is_copied)
            await self._save_commits()
            interval_ms = WHOLE_TABLES_INTERVAL_MS if self._is_apache else CHANGES_INTERVAL_MS
            if not self._may_copy():
                # No link: copy the tables as soon as there is one.
                interval_ms = LINK_INTERVAL_MS
            try:
                await asyncio.wait_for(self._wake.wait(), interval_ms / 1000)
            except asyncio.TimeoutError:
                continue

    def _take_arrival(self, topic: bytes, _queue_id: int, _max_offset: int) -> None:
        """Copy at once for a new topic: its messages cannot be read before the topic is known."""
        if topic in self._arrived:
            return
        if len(self._arrived) >= ARRIVED_MAX:
            self._arrived.clear()
        self._arrived.add(topic)
        if self._tables.topics.find(topic.decode("latin-1")) is None:
            self._wake.set()

    def _note(self, is_copied: bool) -> None:
        if is_copied and self._has_warned:
            self._has_warned = False
            _log.info("copying the tables of master %s resumed", self._asked)
        self._is_failing = not is_copied

    async def _ask(self, address: str, command: RemotingCommand) -> RemotingCommand:
        return await self._client.request(address, command, REQUEST_TIMEOUT_MS)

    # A master of ours

    async def _copy_changes(self, address: str) -> None:
        tables = self._tables
        tokens = {
            **self._tokens,
            # Consumers have changed the tables here, so that they differ from the master's.
            "topics": version_token(tables.topics.version),
            "groups": version_token(tables.groups.version),
        }
        count, commits = self._commits()
        named = {"brokerName": self._broker_name, "paged": "1"}
        body = b""
        waiting = list(commits.items())
        while waiting:
            part = dict(waiting[:COMMITS_PER_REQUEST])
            del waiting[:COMMITS_PER_REQUEST]
            body = emit_json({"offsetTable": offset_table(part)})
            ahead = {**named, "commitsOnly": "1"}
            if waiting and await self._changes(address, ahead, body) is None:
                return
        answer = await self._changes(address, {**named, **tokens}, body)
        if answer is None:
            return
        ext = answer.ext
        self._tables.identity.adopt(ext.get("storeId", ""), ext.get("epoch", ""))
        self._sent(count)
        content = dict(parse_body(answer.body))
        for number in range(1, whole_number(ext.get("pages", "1"), "pages", 1, _PAGES_MAX)):
            of_page = {**named, "snapshot": ext.get("snapshot", ""), "page": str(number)}
            page = await self._ask(address, _changes_request(of_page))
            _check(page)
            join_content(content, parse_body(page.body))
        log_id = self._log_id()
        is_same_log = bool(log_id) and answer.ext.get("logId") == log_id
        for table in TABLES:
            if table in content:
                self._take(table, object_field(content, table), is_same_log)
            self._tokens[table] = answer.ext.get(table, "")

    async def _changes(
        self, address: str, ext: dict[str, str], body: bytes
    ) -> RemotingCommand | None:
        """None when the master turns out to be Apache's broker."""
        answer = await self._ask(address, _changes_request(ext, body))
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._is_apache = True
            return None
        _check(answer)
        return answer

    def _take(self, table: str, found: Mapping[str, Any], is_same_log: bool) -> None:
        if table == "topics":
            self._take_topics(found, is_same_log)
        elif table == "groups":
            self._take_groups(found)
        elif table == "offsets":
            position = whole_field(found, "logPosition", 0, least=0)
            self._take_offsets(parse_changes(found), position)
        elif table == "sinks":
            self._tables.sinks.copy(found)
        elif table == "modes":
            self._tables.modes.replace(found)
        elif found:
            position = whole_field(found, "logPosition", -1, least=-1)
            self._held[table] = _HeldFile(position, dict(found))

    # A master of Apache

    async def _copy_whole(self, address: str) -> None:
        found = await self._table(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        self._take_topics(found, is_same_log=False)
        found = await self._table(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        changes = parse_changes({"offsetTable": object_field(found, "offsetTable")})
        await self._hand_over(address, changes.offsets)
        # Apache does not report its log position; one round later the log here has reached it.
        self._take_offsets(changes, self._store.log_range[1], rounds=1)
        found = await self._table(address, RequestCode.GET_ALL_DELAY_OFFSET)
        self._take_delays(found)
        found = await self._table(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        self._take_groups(found)
        code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE
        answer = await self._ask(address, RemotingCommand(code))
        # 4.x has no such table.
        if answer.code == ResponseCode.SUCCESS:
            self._tables.modes.replace(parse_body(answer.body))

    async def _table(self, address: str, code: int) -> Mapping[str, Any]:
        answer = await self._ask(address, RemotingCommand(code))
        _check(answer)
        return parse_body(answer.body)

    async def _hand_over(self, address: str, known: Mapping[OffsetKey, int]) -> None:
        """Send commits made here that are ahead of the master's; Apache takes any offset."""
        count, commits = self._commits()
        for key, offset in commits.items():
            if offset <= known.get(key, -1):
                continue
            group, topic, queue_id = key
            ext = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": str(queue_id),
                "commitOffset": str(offset),
            }
            answer = await self._ask(
                address, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
            )
            if answer.code != ResponseCode.SUCCESS:
                _log.info(
                    "offset %d of %s was not sent to the master: %s", offset, key, answer.remark
                )
        self._sent(count)

    def _take_delays(self, found: Mapping[str, Any]) -> None:
        """Apply the answer before this one: Apache does not report its log position.

        The copies delivered until then have been replicated since, or the link is broken.
        """
        if self._last_delays is not None:
            self._held["delays"] = _HeldFile(self._store.log_range[1], self._last_delays)
        self._last_delays = {
            name: dict(object_field(found, name)) for name in ("dataVersion", "offsetTable")
        }

    # Both

    def _commits(self) -> tuple[int, dict[OffsetKey, int]]:
        """Offsets committed here since the last hand-over, and the number of the last change."""
        offsets = self._tables.offsets
        count = offsets.change_count
        changes = offsets.changes_since(self._committed_here)
        return count, {**self._unsent, **(changes.offsets if changes is not None else {})}

    def _sent(self, count: int) -> None:
        """The master has the commits up to that change."""
        self._committed_here = count
        self._unsent.clear()

    async def _save_commits(self) -> None:
        """Save the commits that the master lacks, in case this slave stops first."""
        _, commits = self._commits()
        if commits != self._saved_commits:
            content = {"offsetTable": offset_table(commits)}
            try:
                await asyncio.to_thread(self._tables.commits.save, content)
            except OSError as error:
                _log.warning("commits for the master cannot be saved: %s", error)
                return
            self._saved_commits = commits

    def _take_topics(self, found: Mapping[str, Any], is_same_log: bool) -> None:
        topics = self._tables.topics
        version = parse_data_version(found.get("dataVersion"))
        if version == topics.version:
            return
        gone = topics.replace(parse_topic_table(object_field(found, "topicConfigTable")), version)
        for topic in gone:
            _log.info("topic %s was deleted by the master", topic)
            if is_same_log:
                # A master with another log may be misconfigured, which must not delete messages.
                self._store.delete_topic(topic)
                self._tables.offsets.remove_topic(topic)

    def _take_groups(self, found: Mapping[str, Any]) -> None:
        groups = self._tables.groups
        version = parse_data_version(found.get("dataVersion"))
        if version != groups.version:
            groups.replace(
                parse_group_table(object_field(found, "subscriptionGroupTable")),
                object_field(found, "forbiddenTable"),
                version,
            )

    def _take_offsets(self, changes: OffsetChanges, position: int, rounds: int = 0) -> None:
        of_transactions = {}
        for key, offset in changes.offsets.items():
            if key[0] == TRANSACTION_GROUP:
                of_transactions[key] = offset
            else:
                self._copy_offset(key, offset, key in changes.went_back)
        if of_transactions:
            self._ended.append(_Ended(position, rounds, of_transactions))
        for group, topic, queue_id in changes.removed:
            self._ahead.pop((group, topic, queue_id), None)
            self._tables.offsets.remove_queue(group, topic, queue_id)

    def _copy_offset(self, key: OffsetKey, offset: int, backwards: bool = False) -> None:
        self._ahead.pop(key, None)
        try:
            if not self._tables.offsets.copy(key, offset, backwards=backwards):
                self._ahead[key] = offset
        except (InvalidArgument, LimitReached) as error:
            _log.warning("the offset of %s is ignored: %s", key, error)

    def _try_ahead(self) -> None:
        for key, offset in list(self._ahead.items()):
            self._copy_offset(key, offset)
        waiting: list[_Ended] = []
        for ended in self._ended:
            if ended.rounds or ended.position > self._store.flushed_position:
                waiting.append(ended._replace(rounds=max(ended.rounds - 1, 0)))
                continue
            for key, offset in ended.offsets.items():
                self._copy_offset(key, offset)
        # Only the latest is kept: progress that is skipped is found in the log.
        self._ended = waiting[-_ENDED_KEPT:]

    async def _write_held(self) -> None:
        files = {"delays": self._tables.delays, "transactions": self._tables.transactions}
        for table, held in list(self._held.items()):
            if held.position > self._store.flushed_position:
                continue
            del self._held[table]
            content = {**held.content, "storeId": self._store.store_id}
            try:
                await asyncio.to_thread(files[table].save, content)
            except OSError as error:
                _log.warning("the %s of the master cannot be written: %s", table, error)
                self._held.setdefault(table, held)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("copying the master's tables ended with an error", exc_info=task.exception())


def _changes_request(ext: dict[str, str], body: bytes = b"") -> RemotingCommand:
    return RemotingCommand(RequestCode.METADATA_CHANGES, ext, body)


def _check(answer: RemotingCommand) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise RemoteError.for_code(answer.code, answer.remark)
