"""Requests of slaves for the master's tables: Apache's codes and one of ours.

43 offsets, 45 delay offsets, 61 timer metrics, 402 request modes
                   whole tables, for Apache's slaves (21 and 201 are answered by `admin`)
METADATA_CHANGES   every table that changed since the last answer, for slaves of ours; they also
                   send the offsets that consumers committed to them while the master was away
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final

from broker_core.broker.replication.metadata_format import (
    changes_object,
    content_token,
    count_token,
    counted,
    parse_body,
    parse_offset_table,
    split_content,
    version_token,
)
from broker_core.broker.request_fields import required_number, required_text
from broker_core.broker.sink.batches import SinkBatches
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.log_identity import LogIdentity
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.request_modes import RequestModes
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json
from broker_core.codec.json.fields import object_field
from broker_core.codec.wire.bodies.group_config import group_table_object
from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    data_version_object,
    topic_table_object,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import TRANSACTION_GROUP
from broker_core.errors import InvalidArgument, LimitReached, RemoteError
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

# Snapshots kept at once. Beyond that the oldest is dropped and its slave starts over.
SNAPSHOTS_MAX: Final = 4


class SlaveMetadataProcessor:
    """Answers from the tables. `delays()` is (data version, next offset by level)."""

    def __init__(
        self,
        *,
        broker_name: str,
        is_master: bool,
        log_id: Callable[[], str],
        identity: LogIdentity,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        sinks: SinkBatches,
        modes: RequestModes,
        delays: Callable[[], tuple[DataVersion, Mapping[int, int]]],
        transactions: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._broker_name = broker_name
        self._is_master = is_master
        self._log_id = log_id
        self._identity = identity
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._sinks = sinks
        self._modes = modes
        self._delays = delays
        self._transactions = transactions
        # Change counts are valid for one run only.
        self._run = secrets.token_hex(4)
        # Pages that slaves have not fetched yet, by snapshot, oldest first.
        self._pages: dict[str, list[dict[str, Any]]] = {}

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.GET_ALL_CONSUMER_OFFSET: self._all_offsets,
            RequestCode.GET_ALL_DELAY_OFFSET: self._all_delays,
            RequestCode.GET_TIMER_METRICS: self._timer_metrics,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._request_modes,
            RequestCode.METADATA_CHANGES: self._changes,
        }

    # Slaves of Apache

    def _all_offsets(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=emit_json(self._offsets.as_object()))

    def _all_delays(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=emit_json(self._delay_object()))

    def _timer_metrics(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        # Required by slaves of 5.x; our timer progress is not in this format.
        nothing = {"dataVersion": data_version_object(DataVersion()), "timingCount": {}}
        return command.reply(body=emit_json(nothing))

    def _request_modes(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=emit_json(self._modes.as_object()))

    # Slaves of ours

    def _changes(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        ext = command.ext
        name = required_text(ext, "brokerName")
        if name != self._broker_name:
            raise InvalidArgument(
                f"a slave of {name[:100]} asks {self._broker_name}: slaves have their master's name"
            )
        if not self._is_master:
            raise RemoteError.for_code(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"this member of {name} is a slave itself"
            )
        snapshot = ext.get("snapshot", "")
        if snapshot:
            return self._page(command, snapshot, required_number(ext, "page", 1, 1 << 30))
        self._take_commits(object_field(parse_body(command.body), "offsetTable"))
        if ext.get("commitsOnly") == "1":
            return command.reply()
        tokens: dict[str, str] = {}
        content: dict[str, Any] = {}
        for table, (token, describe) in self._tables(ext).items():
            tokens[table] = token
            if ext.get(table, "") != token:
                content[table] = describe()
        fields = {
            "logId": self._log_id(),
            "storeId": self._identity.store_id,
            "epoch": self._identity.epoch,
        }
        if ext.get("paged") == "1":
            pages = split_content(content)
            content = pages[0]
            if len(pages) > 1:
                fields |= {"pages": str(len(pages)), "snapshot": self._keep_pages(pages)}
        return command.reply(ext={**fields, **tokens}, body=emit_json(content))

    def _keep_pages(self, pages: list[dict[str, Any]]) -> str:
        snapshot = secrets.token_hex(8)
        self._pages[snapshot] = pages
        while len(self._pages) > SNAPSHOTS_MAX:
            del self._pages[next(iter(self._pages))]
        return snapshot

    def _page(self, command: RemotingCommand, snapshot: str, number: int) -> RemotingCommand:
        pages = self._pages.get(snapshot)
        if pages is None or number >= len(pages):
            raise RemoteError.for_code(
                ResponseCode.SYSTEM_ERROR,
                f"page {number} of snapshot {snapshot[:40]} has expired; start over",
            )
        if number == len(pages) - 1:
            # Pages are fetched in order.
            del self._pages[snapshot]
        return command.reply(body=emit_json(pages[number]))

    def _tables(
        self, ext: Mapping[str, str]
    ) -> Mapping[str, tuple[str, Callable[[], Mapping[str, Any]]]]:
        delays = self._delay_object()
        # Position and version change without an effect; only the offsets count.
        delay_token = content_token({"offsetTable": delays["offsetTable"]})
        transactions = self._transactions()
        checks = object_field(transactions, "checks")
        known_offsets = counted(ext.get("offsets", ""), self._run)
        known_sinks = counted(ext.get("sinks", ""), self._run)
        offset_token = count_token(self._run, self._offsets.change_count)
        sink_token = count_token(self._run, self._sinks.change_count)
        return {
            "topics": (version_token(self._topics.version), self._topic_object),
            "groups": (version_token(self._groups.version), self._group_object),
            "offsets": (offset_token, lambda: self._offset_object(known_offsets)),
            "sinks": (sink_token, lambda: self._sinks.as_object(known_sinks)),
            "delays": (
                delay_token,
                lambda: {**delays, "logPosition": self._store.log_range[1]},
            ),
            "transactions": (content_token({"checks": checks}), lambda: transactions),
            "modes": (content_token(self._modes.as_object()), self._modes.as_object),
        }

    def _take_commits(self, found: Mapping[str, Any]) -> None:
        """Commit offsets that the slave collected. They move forward only."""
        for (group, topic, queue_id), offset in parse_offset_table(found):
            if group == TRANSACTION_GROUP or self._topics.find(topic) is None:
                continue
            try:
                self._offsets.commit(group, topic, queue_id, offset)
            except (InvalidArgument, LimitReached):
                # Skip this offset: its messages are consumed again. The others must be kept.
                continue

    def _topic_object(self) -> dict[str, Any]:
        return {
            "dataVersion": data_version_object(self._topics.version),
            "topicConfigTable": topic_table_object(self._topics.all()),
        }

    def _group_object(self) -> dict[str, Any]:
        return {
            "dataVersion": data_version_object(self._groups.version),
            "forbiddenTable": dict(self._groups.forbidden),
            "subscriptionGroupTable": group_table_object(self._groups.all()),
        }

    def _offset_object(self, known_count: int) -> Mapping[str, Any]:
        changes = self._offsets.changes_since(known_count)
        found = self._offsets.as_object() if changes is None else changes_object(changes)
        return {**found, "logPosition": self._store.log_range[1]}

    def _delay_object(self) -> dict[str, Any]:
        version, by_level = self._delays()
        return {
            "dataVersion": data_version_object(version),
            "offsetTable": {str(level): offset for level, offset in by_level.items()},
        }
