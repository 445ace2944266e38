"""Format of table changes between a master and a slave of ours. Pure.

The slave sends the token of each table from the last answer. The answer has the new token of each
table, and the content of those whose token differs:

    topics, groups       the whole table; token: its data version
    offsets, sinks       what changed since the token of this run of the master, else everything
    delays, transactions, modes
                         the whole table, small; token: a checksum of it

Tokens are texts that only the master understands.

A slave that sends `paged=1` may get the content in several answers. The first one has `pages` and
`snapshot`; the slave asks for the others by `snapshot` and `page`. Each page is a JSON object with
a part of the entries; together they are the tables as of the first answer.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from broker_core.broker.tables.offset_table import OffsetChanges, OffsetKey
from broker_core.codec.json.dialect import emit_json, parse_object
from broker_core.codec.json.fields import list_field, object_field, whole_field, whole_number
from broker_core.codec.wire.bodies.message_queue import QUEUE_ID_MAX
from broker_core.codec.wire.bodies.topic_config import DataVersion
from broker_core.errors import InvalidArgument

# Far below the limits of a frame and of a JSON text; a page is encoded in one turn of the loop.
PAGE_SIZE: Final = 1 << 20
COMMITS_PER_REQUEST: Final = 20_000

TABLES: Final = ("topics", "groups", "offsets", "sinks", "delays", "transactions", "modes")


def version_token(version: DataVersion) -> str:
    """Token of a table with a data version."""
    return f"{version.counter}.{version.state_version}.{version.timestamp_ms}"


def tables_token(topics: DataVersion, groups: DataVersion) -> str:
    """Token of topics and groups together."""
    return f"{version_token(topics)}-{version_token(groups)}"


def count_token(run: str, change_count: int) -> str:
    """Token of a table that counts its changes since the master started."""
    return f"{run}.{change_count}"


def counted(token: str, run: str) -> int:
    """The change count of a token of this run; -1 for every other token."""
    of_run, _, count = token.partition(".")
    return int(count) if of_run == run and count.isdecimal() else -1


def content_token(content: Mapping[str, Any]) -> str:
    """Token of a small table: a checksum."""
    return f"{zlib.crc32(emit_json(content)):08x}"


def split_content(content: Mapping[str, Any], size_max: int = PAGE_SIZE) -> list[dict[str, Any]]:
    """The tables in pages of about `size_max` bytes; entries of their maps are spread."""
    pages: list[dict[str, Any]] = [{}]
    size = 0
    for table, fields in content.items():
        pages[-1].setdefault(table, {})
        for name, value in fields.items():
            if not isinstance(value, Mapping):
                pages[-1].setdefault(table, {})[name] = value
                continue
            pages[-1].setdefault(table, {})[name] = {}
            for key, entry in value.items():
                size += len(key) + _about(entry)
                if size > size_max:
                    pages.append({})
                    size = 0
                pages[-1].setdefault(table, {}).setdefault(name, {})[key] = entry
    return pages


def _about(entry: object) -> int:
    """Estimated bytes of an entry; encoding it to measure would cost more than sending it."""
    return 32 * (1 + len(entry)) if isinstance(entry, (Mapping, list, tuple)) else 32


def join_content(content: dict[str, Any], page: Mapping[str, Any]) -> None:
    """Add a page to those before it."""
    for table, fields in page.items():
        known = content.setdefault(table, {})
        for name, value in object_field(page, table).items():
            if isinstance(known.get(name), dict) and isinstance(value, Mapping):
                known[name].update(value)
            else:
                known[name] = value
        assert isinstance(fields, Mapping)


def parse_body(body: bytes | memoryview) -> Mapping[str, Any]:
    """The JSON object in a body; empty for an empty body."""
    if not body:
        return {}
    return parse_object(body, references=True)


# Offsets


def offset_table(offsets: Mapping[OffsetKey, int]) -> dict[str, dict[str, int]]:
    """In RocketMQ's shape: `topic@group` -> queue id -> offset."""
    table: dict[str, dict[str, int]] = {}
    for (group, topic, queue_id), offset in offsets.items():
        table.setdefault(f"{topic}@{group}", {})[str(queue_id)] = offset
    return table


def parse_offset_table(found: Mapping[str, Any]) -> Iterator[tuple[OffsetKey, int]]:
    """The entries of such a table. Names are not checked here."""
    for name in found:
        topic, at, group = name.partition("@")
        if not at:
            raise InvalidArgument(f"{name[:100]!r} is not topic@group")
        queues = object_field(found, name)
        for text in queues:
            queue_id = whole_number(text, "queue", 0, QUEUE_ID_MAX)
            yield (group, topic, queue_id), whole_field(queues, text)


def changes_object(changes: OffsetChanges) -> dict[str, Any]:
    """Changes of offsets as a JSON object."""
    return {
        "offsetTable": offset_table(changes.offsets),
        "wentBack": _key_lists(changes.went_back),
        "removed": _key_lists(changes.removed),
    }


def parse_changes(found: Mapping[str, Any]) -> OffsetChanges:
    """The opposite of `changes_object`; a table of 43 is one, too."""
    return OffsetChanges(
        dict(parse_offset_table(object_field(found, "offsetTable"))),
        list(_parse_key_lists(object_field(found, "removed"))),
        set(_parse_key_lists(object_field(found, "wentBack"))),
    )


def _key_lists(keys: Iterable[OffsetKey]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for group, topic, queue_id in keys:
        found.setdefault(f"{topic}@{group}", []).append(queue_id)
    return found


def _parse_key_lists(found: Mapping[str, Any]) -> Iterator[OffsetKey]:
    for name in found:
        topic, _, group = name.partition("@")
        for queue_id in list_field(found, name):
            if type(queue_id) is not int:
                raise InvalidArgument(f"queue {queue_id!r:.40} of {name[:100]} is not a number")
            yield group, topic, queue_id
