"""Consumer groups: create, change, delete, list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker_core.broker.request_fields import checked_group, optional_flag, required_text
from broker_core.broker.tables.broker_stats import BrokerStats
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.tables.config_attributes import GROUP_ATTRIBUTES, changed_attributes
from broker_core.broker.tables.group_table import GroupTable
from broker_core.broker.tables.offset_table import OffsetTable
from broker_core.broker.tables.table_changes import TableChanges
from broker_core.broker.tables.topic_table import TopicTable
from broker_core.codec.json.dialect import emit_json, parse_json, parse_object
from broker_core.codec.json.fields import list_field, object_field, text_field
from broker_core.codec.wire.bodies.group_config import (
    GroupConfig,
    group_config_object,
    group_table_object,
    parse_group_config,
)
from broker_core.codec.wire.bodies.topic_config import data_version_object
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import GroupNotExist, InvalidArgument
from broker_core.protocol_codes import RequestCode, ResponseCode
from broker_core.remoting.connection import Connection
from broker_core.remoting.request_dispatch import Handler
from broker_core.store.message_store import MessageStore

GROUPS_PER_REQUEST_MAX: Final = 10_000


class GroupAdminProcessor:
    """Changes `groups`. A deletion also removes offsets and statistics."""

    def __init__(
        self,
        *,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        changes: TableChanges[GroupConfig],
        offsets: OffsetTable,
        clients: ClientTable,
        stats: BrokerStats,
        queues_per_topic_max: int = 1024,
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._changes = changes
        self._offsets = offsets
        self._clients = clients
        self._stats = stats
        self._queues_per_topic_max = queues_per_topic_max

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._put,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._put_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._one,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete,
        }

    # Changes

    async def _put(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        await self._put_all([parse_json(command.body)])
        return command.reply()

    async def _put_list(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        found = parse_object(command.body, references=True)
        items = list_field(found, "groupConfigList")
        if not 0 < len(items) <= GROUPS_PER_REQUEST_MAX:
            raise InvalidArgument(
                f"groupConfigList has {len(items)} groups: give 1 to {GROUPS_PER_REQUEST_MAX}"
            )
        await self._put_all(items)
        return command.reply()

    async def _put_all(self, items: Sequence[object]) -> None:
        """Put all groups, or none if one is invalid or the write fails."""

        def changes() -> dict[str, GroupConfig | None]:
            return {group.name: group for group in map(self._group_of, items)}

        # Validate before waiting, so that an invalid request fails at once.
        names = list(changes())
        await self._changes.change(names, changes)

    def _group_of(self, found: object) -> GroupConfig:
        group = parse_group_config(object_field({"groupConfig": found}, "groupConfig"))
        checked_group(group.name)
        if group.retry_queue_count > self._queues_per_topic_max:
            raise InvalidArgument(
                f"retryQueueNums of group {group.name} cannot be {group.retry_queue_count}: give 0 "
                f"to {self._queues_per_topic_max} (queuesPerTopicMax)"
            )
        return self._with_attributes(group)

    def _with_attributes(self, group: GroupConfig) -> GroupConfig:
        asked = object_field(group.extra, "attributes")
        before = self._groups.find(group.name)
        current = None if before is None else object_field(before.extra, "attributes")
        if not asked and not current:
            return group
        changes = {name: text_field(asked, name) for name in asked}
        attributes = changed_attributes(current, changes, GROUP_ATTRIBUTES)
        return group._replace(extra={**group.extra, "attributes": attributes})

    async def _delete(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        name = checked_group(required_text(command.ext, "groupName"))
        if self._groups.is_system(name):
            raise InvalidArgument(f"group {name} belongs to the servers and cannot be deleted")
        cleans_offset = optional_flag(command.ext, "cleanOffset", False)

        def forget() -> None:
            if cleans_offset:
                self._offsets.remove_group(name)
            self._stats.remove_group(name)

        await self._changes.change([name], lambda: {name: None}, forget)
        return command.reply()

    # Queries

    def _all(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        groups = self._groups.all()
        # Tools of 5.x ask for pages; the total shows that this answer has everything.
        return command.reply(
            ext={"totalGroupNum": str(len(groups))},
            body=emit_json(
                {
                    "dataVersion": data_version_object(self._groups.version),
                    "forbiddenTable": dict(self._groups.forbidden),
                    "subscriptionGroupTable": group_table_object(groups),
                }
            ),
        )

    def _one(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        name = required_text(command.ext, "group")
        # Apache's proxy asks before the first pull of a group, which creates it.
        group = self._groups.find(name) or self._groups.from_defaults(name)
        if group is None:
            raise GroupNotExist(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {name[:255]} does not exist in this broker",
            )
        return command.reply(body=emit_json(group_config_object(group)))
