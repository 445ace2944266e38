"""The consumer groups of this broker, in memory and in `subscriptionGroup.json`.

Owned by the event loop. As with topics, a change is on disk before it can be seen; one that cannot
be written is undone and raises `DiskFailed`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from broker_core.broker.request_fields import checked_group
from broker_core.broker.system_topics import SYSTEM_GROUPS, is_system_group
from broker_core.codec.group_config import GroupConfig, group_table_object, parse_group_table
from broker_core.codec.json_fields import object_field
from broker_core.codec.topic_config import DataVersion, data_version_object, parse_data_version
from broker_core.codec.topic_name import group_name_problem
from broker_core.errors import InvalidArgument, LimitReached, StoreUnusable
from broker_core.runtime.clock import Clock
from broker_core.storage.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

_log = logging.getLogger(__name__)

GROUPS_FILE: Final = "config/subscriptionGroup.json"


class GroupTable:
    """Every group by name. Loads, and makes what is missing of the system groups, when built."""

    def __init__(
        self,
        table: JsonTable,
        clock: Clock,
        *,
        auto_create: bool = True,
        groups_max: int = 50_000,
    ) -> None:
        self._table = table
        self._clock = clock
        self._auto_create = auto_create
        self._groups_max = groups_max
        self._groups: dict[str, GroupConfig] = {}
        self._version = DataVersion()
        # Which topics a group may not read. Set by tools of 5.x; kept for them.
        self._forbidden: Mapping[str, Any] = {}
        self._load()

    def find(self, name: str) -> GroupConfig | None:
        """The group of that name."""
        return self._groups.get(name)

    def find_or_create(self, name: str) -> GroupConfig | None:
        """The group of that name; made with the defaults unless clients may not make groups."""
        found = self._groups.get(name)
        if found is not None:
            return found
        made = self.from_defaults(name)
        return None if made is None else self.put(made)

    def from_defaults(self, name: str) -> GroupConfig | None:
        """What `find_or_create` would make, without making it; None when it may not be made."""
        checked_group(name)
        if not self._auto_create and not is_system_group(name):
            return None
        return GroupConfig(name)

    def set_auto_create(self, is_allowed: bool) -> None:
        """Let consumers make groups, or not, from now on."""
        self._auto_create = is_allowed

    def all(self) -> list[GroupConfig]:
        """Every group, sorted by name."""
        return [self._groups[name] for name in sorted(self._groups)]

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def version(self) -> DataVersion:
        """Which state of the table this is; changes with every change."""
        return self._version

    @property
    def forbidden(self) -> Mapping[str, Any]:
        """The `forbiddenTable` as it was loaded."""
        return self._forbidden

    def is_system(self, name: str) -> bool:
        """Whether a group belongs to the servers."""
        return is_system_group(name)

    def put(self, group: GroupConfig) -> GroupConfig:
        """Make a group or replace its settings; returns what the table holds now."""
        name = checked_group(group.name)
        before = self._groups.get(name)
        if before == group:
            return before
        self.check_room(name)
        self._groups[name] = group
        self._commit({name: before})
        return group

    def put_all(self, groups: Iterable[GroupConfig]) -> None:
        """`put` each with one write: all of them, or none when one is wrong or the disk fails."""
        changed = [group for group in groups if self._groups.get(group.name) != group]
        new = 0
        for group in changed:
            self.check_room(checked_group(group.name), new)
            new += group.name not in self._groups
        if changed:
            before = {group.name: self._groups.get(group.name) for group in changed}
            self._groups.update((group.name, group) for group in changed)
            self._commit(before)

    def check_room(self, name: str, coming: int = 0) -> None:
        """Refuse a group that cannot be put, also when `coming` others are made before it."""
        count = len(self._groups) + coming
        if name not in self._groups and count >= self._groups_max:
            raise LimitReached(
                f"group {name} cannot be made: this broker has {count} groups, at most "
                f"{self._groups_max} (groupsMax)"
            )

    def delete(self, name: str) -> bool:
        """Forget a group; False when there is none. Its offsets are the caller's business."""
        before = self._groups.pop(name, None)
        if before is None:
            return False
        self._commit({name: before})
        return True

    def replace(
        self, groups: Iterable[GroupConfig], forbidden: Mapping[str, Any], version: DataVersion
    ) -> None:
        """Become a copy of a master's table; the groups that every broker has stay."""
        before = self._groups, self._forbidden, self._version
        copied = {g.name: g for g in groups if group_name_problem(g.name) is None}
        kept = {name: group for name, group in self._groups.items() if self.is_system(name)}
        self._groups, self._forbidden, self._version = {**kept, **copied}, forbidden, version
        try:
            self.save()
        except BaseException:
            self._groups, self._forbidden, self._version = before
            raise

    @names_disk_errors
    def save(self) -> None:
        """Write the table; changes do so by themselves."""
        self._table.save(
            {
                "dataVersion": data_version_object(self._version),
                "forbiddenTable": dict(self._forbidden),
                "subscriptionGroupTable": group_table_object(self._groups.values()),
            }
        )

    def _commit(self, before: Mapping[str, GroupConfig | None]) -> None:
        """Write what was changed, or undo it."""
        version = self._version
        self._version = self._next_version()
        try:
            self.save()
        except BaseException:
            self._version = version
            for name, group in before.items():
                if group is None:
                    self._groups.pop(name, None)
                else:
                    self._groups[name] = group
            raise
        for name, group in before.items():
            if group is None:
                _log.info("group %s made", name)

    def _next_version(self) -> DataVersion:
        return DataVersion(self._version.counter + 1, 0, self._clock.wall_ms())

    def _load(self) -> None:
        stored = self._table.load()
        if stored is not None:
            try:
                self._take(stored)
            except InvalidArgument as error:
                raise StoreUnusable(f"{GROUPS_FILE}: {error}. Repair the file") from error
        missing = [name for name in SYSTEM_GROUPS if name not in self._groups]
        if missing or stored is None:
            self._groups.update((name, GroupConfig(name)) for name in missing)
            self._version = self._next_version()
            self.save()

    def _take(self, stored: dict[str, Any]) -> None:
        self._version = parse_data_version(stored.get("dataVersion"))
        self._forbidden = object_field(stored, "forbiddenTable")
        for group in parse_group_table(object_field(stored, "subscriptionGroupTable")):
            problem = group_name_problem(group.name)
            if problem is not None:
                _log.warning("%s: %r is left out: %s", GROUPS_FILE, group.name[:80], problem)
                continue
            self._groups[group.name] = group
