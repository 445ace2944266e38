"""The consumer groups of this broker, in memory and in `subscriptionGroup.json`.

Owned by the event loop. As with topics, a change is on disk before it can be seen; one that cannot
be written is undone and raises `DiskFailed`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_core.broker.request_fields import checked_group
from broker_core.broker.tables.named_table import NamedTable
from broker_core.codec.json.fields import object_field
from broker_core.codec.wire.bodies.group_config import (
    GroupConfig,
    group_table_object,
    parse_group_table,
)
from broker_core.codec.wire.bodies.topic_config import (
    DataVersion,
    data_version_object,
    parse_data_version,
)
from broker_core.codec.wire.topic_name import SYSTEM_GROUPS, group_name_problem, is_system_group
from broker_core.errors import LimitReached
from broker_core.runtime.clock import Clock
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

_log = logging.getLogger(__name__)

GROUPS_FILE: Final = "config/subscriptionGroup.json"


class GroupTable(NamedTable[GroupConfig]):
    """Every group by name. Loads and adds missing system groups when constructed."""

    def __init__(
        self,
        table: JsonTable,
        clock: Clock,
        *,
        auto_create: bool = True,
        groups_max: int = 50_000,
    ) -> None:
        super().__init__(table, clock, GROUPS_FILE)
        self._auto_create = auto_create
        self._groups_max = groups_max
        # Topics that a group may not read. Set by tools of 5.x and stored for them.
        self._forbidden: Mapping[str, Any] = {}
        self._load()

    def find_or_create(self, name: str) -> GroupConfig | None:
        """The group of that name, created with the defaults if clients may create groups."""
        found = self._entries.get(name)
        if found is not None:
            return found
        made = self.from_defaults(name)
        return None if made is None else self.put(made)

    def from_defaults(self, name: str) -> GroupConfig | None:
        """The group that `find_or_create` would create; None when it may not."""
        checked_group(name)
        if not self._auto_create and not is_system_group(name):
            return None
        return GroupConfig(name)

    def set_auto_create(self, is_allowed: bool) -> None:
        """Whether consumers may create groups from now on."""
        self._auto_create = is_allowed

    @property
    def forbidden(self) -> Mapping[str, Any]:
        """The `forbiddenTable` as it was loaded."""
        return self._forbidden

    def is_system(self, name: str) -> bool:
        """Whether a group belongs to the servers."""
        return is_system_group(name)

    def check_room(self, entry: GroupConfig, coming: int = 0) -> None:
        """Raise if the table has no room for a group after `coming` others."""
        name = checked_group(entry.name)
        count = len(self._entries) + coming
        if name not in self._entries and count >= self._groups_max:
            raise LimitReached(
                f"group {name} cannot be created: this broker has {count} groups, at most "
                f"{self._groups_max} (groupsMax)"
            )

    def replace(
        self, groups: Iterable[GroupConfig], forbidden: Mapping[str, Any], version: DataVersion
    ) -> None:
        """Replace the table by the master's; system groups stay."""
        before = self._entries, self._forbidden, self._version
        copied = {g.name: g for g in groups if group_name_problem(g.name) is None}
        kept = {name: group for name, group in self._entries.items() if self.is_system(name)}
        self._entries, self._forbidden, self._version = {**kept, **copied}, forbidden, version
        try:
            self.save()
        except BaseException:
            self._entries, self._forbidden, self._version = before
            raise

    @names_disk_errors
    def save(self) -> None:
        """Write the table. Changes do so themselves."""
        self._table.save(
            {
                "dataVersion": data_version_object(self._version),
                "forbiddenTable": dict(self._forbidden),
                "subscriptionGroupTable": group_table_object(self._entries.values()),
            }
        )

    def _changed(
        self, changed: list[GroupConfig], before: Mapping[str, GroupConfig | None]
    ) -> None:
        for group in changed:
            if before.get(group.name) is None:
                _log.info("group %s created", group.name)

    def _load(self) -> None:
        is_new = not self._stored()
        missing = [name for name in SYSTEM_GROUPS if name not in self._entries]
        if missing or is_new:
            self._entries.update((name, GroupConfig(name)) for name in missing)
            self._version = self._next_version()
            self.save()

    def _take(self, stored: dict[str, Any]) -> None:
        self._version = parse_data_version(stored.get("dataVersion"))
        self._forbidden = object_field(stored, "forbiddenTable")
        groups = parse_group_table(object_field(stored, "subscriptionGroupTable"))
        self._enter(groups, group_name_problem)
