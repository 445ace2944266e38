"""Which groups pop which topics, in memory and in `messageRequestMode.json`, in RocketMQ's shape.

Owned by the event loop. A change is on disk before it can be seen; one that cannot be written is
undone and raises `DiskFailed`. A group without an entry pulls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.broker.request_fields import checked_group, checked_topic
from broker_core.codec.json.fields import I32_MAX, object_field, text_field, whole_field
from broker_core.errors import InvalidArgument, LimitReached, StoreUnusable
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

MODES_FILE: Final = "config/messageRequestMode.json"
PULL: Final = "PULL"
POP: Final = "POP"
MODES_MAX: Final = 100_000

_MAP: Final = "messageRequestModeMap"


class RequestMode(NamedTuple):
    """Whether a group pulls or pops a topic, and with how many others a member shares queues."""

    mode: str = PULL
    share_queue_count: int = 0


class RequestModes:
    """Modes by topic and group. Loads when constructed."""

    def __init__(self, table: JsonTable) -> None:
        self._table = table
        self._modes: dict[str, dict[str, RequestMode]] = {}
        self._count = 0
        stored = table.load()
        if stored is not None:
            try:
                self._modes = _parsed(stored)
            except InvalidArgument as error:
                raise StoreUnusable(f"{MODES_FILE}: {error}. Repair the file") from error
        self._recount()

    def find(self, topic: str, group: str) -> RequestMode:
        return self._modes.get(topic, {}).get(group, _PULLS)

    def set(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set whether a group pulls or pops a topic."""
        checked_topic(topic)
        checked_group(group)
        before = self._modes.get(topic, {}).get(group)
        if before == mode:
            return
        if before is None and self._count >= MODES_MAX:
            raise LimitReached(f"this broker stores the mode of {MODES_MAX} groups, the maximum")
        self._save_as(_with(self._modes, topic, group, mode))

    def replace(self, found: Mapping[str, Any]) -> None:
        """Replace the table by the master's."""
        modes = _parsed(found)
        if modes != self._modes:
            self._save_as(modes)

    def as_object(self) -> dict[str, Any]:
        """The table as slaves and the file get it."""
        return _object(self._modes)

    @names_disk_errors
    def _save_as(self, modes: dict[str, dict[str, RequestMode]]) -> None:
        self._table.save(_object(modes))
        self._modes = modes
        self._recount()

    def _recount(self) -> None:
        self._count = sum(map(len, self._modes.values()))


_PULLS: Final = RequestMode()


def _with(
    modes: Mapping[str, dict[str, RequestMode]], topic: str, group: str, mode: RequestMode
) -> dict[str, dict[str, RequestMode]]:
    return {**modes, topic: {**modes.get(topic, {}), group: mode}}


def _object(modes: Mapping[str, Mapping[str, RequestMode]]) -> dict[str, Any]:
    return {
        _MAP: {
            topic: {
                group: {
                    "consumerGroup": group,
                    "mode": mode.mode,
                    "popShareQueueNum": mode.share_queue_count,
                    "topic": topic,
                }
                for group, mode in groups.items()
            }
            for topic, groups in modes.items()
        }
    }


def _parsed(found: Mapping[str, Any]) -> dict[str, dict[str, RequestMode]]:
    table = object_field(found, _MAP)
    modes: dict[str, dict[str, RequestMode]] = {}
    for topic in table:
        groups = object_field(table, topic)
        for group in groups:
            modes.setdefault(topic, {})[group] = parse_mode(object_field(groups, group))
    return modes


def parse_mode(found: Mapping[str, Any]) -> RequestMode:
    """The mode that an entry or a request asks for."""
    mode = text_field(found, "mode", PULL)
    if mode not in (PULL, POP):
        raise InvalidArgument(f"mode {mode[:20]!r}: give {PULL} or {POP}")
    return RequestMode(mode, whole_field(found, "popShareQueueNum", 0, -1, I32_MAX))
