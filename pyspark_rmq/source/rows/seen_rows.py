"""Rows of the sink that were read already, by their row names. Pure.

A row of the at-least-once sink has the name `writer:batch:partition:index`, the same in every
attempt. Indexes of a partition are dense, so a few intervals describe the rows seen; there are many
only if rows of a half-read batch were spread over queues one by one.

    {topic: {writer: {batch: {partition: [from, until, from, until, …]}}}}

is stored in a position: writers in order of last use, and the newest batches of each writer. Long
lists are stored as a compressed bitmap.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

WRITERS_MAX: Final = 64
INTERVALS_MAX: Final = 1 << 14
# Limit of partitions of one batch. The last batch is kept whatever its number of intervals.
UNITS_MAX: Final = 1 << 16
_LISTED_MAX: Final = 16
_BITMAP_MAX: Final = 1 << 23
_INDEX_MAX: Final = 1 << 40
_PREFIX: Final = re.compile(r"(.{1,255}):(\d{1,18}):(\d{1,9})", re.DOTALL)
_PROPERTY: Final = r"(?:^|\x02)SPARK_SINK_ROW\x01(?P<name>[^\x02]*)"
_PROPERTY_NAME: Final = b"SPARK_SINK_ROW\x01"

Json = dict[str, Any]


class Unit(NamedTuple):
    """One partition of one batch of one writer."""

    topic: str
    writer: str
    batch: int
    partition: int


class Indexes:
    """A set of integers as sorted, disjoint intervals."""

    def __init__(self, starts: Any = (), ends: Any = ()) -> None:
        self.starts = np.asarray(starts, np.int64)
        self.ends = np.asarray(ends, np.int64)

    def has(self, numbers: Any) -> Any:
        """Boolean array: which of the numbers are in the set."""
        if not len(self.starts):
            return np.zeros(len(numbers), bool)
        place = np.searchsorted(self.starts, numbers, "right") - 1
        return (place >= 0) & (numbers < self.ends[place])

    def add(self, numbers: Any) -> None:
        numbers = np.unique(numbers)
        cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
        starts = numbers[np.concatenate(([0], cuts))]
        ends = numbers[np.concatenate((cuts - 1, [len(numbers) - 1]))] + 1
        starts = np.concatenate((self.starts, starts))
        order = np.argsort(starts, kind="stable")
        starts = starts[order]
        reached = np.maximum.accumulate(np.concatenate((self.ends, ends))[order])
        first = np.concatenate(([True], starts[1:] > reached[:-1]))
        last = np.concatenate((first[1:], [True]))
        self.starts, self.ends = starts[first], reached[last]

    def to_json(self) -> list[int] | str:
        """A list of bounds, or a compressed bitmap if it is long."""
        if len(self.starts) > _LISTED_MAX and self.ends[-1] <= _BITMAP_MAX:
            edges = np.zeros(int(self.ends[-1]) + 1, np.int8)
            edges[self.starts] += 1
            edges[self.ends] -= 1
            bits = np.packbits(np.cumsum(edges[:-1], dtype=np.int8).astype(bool))
            return base64.b64encode(zlib.compress(bits.tobytes(), 6)).decode()
        found: list[int] = np.stack((self.starts, self.ends), 1).ravel().tolist()
        return found

    @staticmethod
    def from_json(found: object) -> Indexes:
        """Parse `to_json`; raises `ValueError`."""
        if isinstance(found, str):
            unpacker = zlib.decompressobj()
            raw = unpacker.decompress(base64.b64decode(found, validate=True), _BITMAP_MAX // 8 + 1)
            bits = np.unpackbits(np.frombuffer(raw, np.uint8)).astype(np.int8)
            edges = np.diff(np.concatenate(([0], bits, [0])))
            return Indexes(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1))
        if not isinstance(found, list) or len(found) % 2 or not all(type(n) is int for n in found):
            raise ValueError(f"{found!r:.40} is not a list of intervals")
        numbers = np.asarray(found, np.int64)
        if len(numbers) and (numbers[0] < 0 or not (np.diff(numbers) > 0).all()):
            raise ValueError(f"{found!r:.40} is not in order")
        return Indexes(numbers[::2], numbers[1::2])


class SeenRows:
    """Rows seen so far, of all writers."""

    def __init__(self, batches_max: int) -> None:
        self._batches_max = batches_max
        self._units: dict[Unit, Indexes] = {}
        # (topic, writer) -> newest batch; those seen last are at the end.
        self._writers: dict[tuple[str, str], int] = {}
        # (topic, writer) -> batches below this are forgotten.
        self._forgotten: dict[tuple[str, str], int] = {}
        self.unknowable = 0
        """Rows of forgotten batches, which were let through."""

    def repeats(self, topic: str, property_texts: Any) -> Any:
        """Boolean array: which messages are copies of rows seen before. Marks all as seen."""
        names = _names(property_texts)
        found = np.zeros(len(property_texts), bool)
        if names is None:
            return found
        rows = np.flatnonzero(names.is_valid().to_numpy(zero_copy_only=False))
        halves = pc.split_pattern(names.drop_null(), ":", max_splits=1, reverse=True)
        is_pair = pc.equal(pc.list_value_length(halves), 2)
        if not pc.all(is_pair).as_py():
            rows, halves = rows[is_pair.to_numpy(zero_copy_only=False)], halves.filter(is_pair)
        indexes = _whole(pc.list_element(halves, 1))
        prefixes = pc.list_element(halves, 0).dictionary_encode()
        codes = prefixes.indices.to_numpy()
        for code, prefix in enumerate(prefixes.dictionary.to_pylist()):
            unit = _unit(topic, prefix)
            mine = np.flatnonzero((codes == code) & (indexes >= 0))
            if unit is not None and len(mine):
                found[rows[mine]] = self._note(unit, indexes[mine])
        return found

    def _note(self, unit: Unit, indexes: Any) -> Any:
        writer = (unit.topic, unit.writer)
        # The writer seen last moves to the end.
        self._writers[writer] = max(self._writers.pop(writer, unit.batch), unit.batch)
        if unit.batch < self._forgotten.get(writer, 0):
            self.unknowable += len(indexes)
        seen = self._units.setdefault(unit, Indexes())
        known = seen.has(indexes)
        if not (np.diff(indexes) > 0).all():
            again = np.ones(len(indexes), bool)
            again[np.unique(indexes, return_index=True)[1]] = False
            known |= again
        if not known.all():
            seen.add(indexes)
        return known

    # What a position keeps

    def forget_old(self) -> None:
        """Evict old batches and writers until the limits hold."""
        for writer in list(self._writers)[:-WRITERS_MAX]:
            self._drop(writer, self._writers[writer] + 1)
            del self._writers[writer]
            del self._forgotten[writer]
        for writer, newest in self._writers.items():
            if (oldest := newest - self._batches_max + 1) > self._forgotten.get(writer, 0):
                self._drop(writer, oldest)
        while sum(len(seen.starts) for seen in self._units.values()) > INTERVALS_MAX:
            batches = sorted({(u.batch, u.topic, u.writer) for u in self._units})
            if len(batches) <= 1 and len(self._units) <= UNITS_MAX:
                break
            for batch, topic, name in batches[: max(1, len(batches) // 4)]:
                self._drop((topic, name), batch + 1)

    def _drop(self, writer: tuple[str, str], below: int) -> None:
        self._forgotten[writer] = below
        for unit in [u for u in self._units if u[:2] == writer and u.batch < below]:
            del self._units[unit]

    def to_json(self) -> Json:
        """For the position."""
        found: Json = {}
        for topic, writer in self._writers:
            found.setdefault(topic, {})[writer] = {}
        for unit in sorted(self._units):
            batches = found[unit.topic][unit.writer]
            indexes = self._units[unit].to_json()
            batches.setdefault(str(unit.batch), {})[str(unit.partition)] = indexes
        return found

    @staticmethod
    def from_json(found: Mapping[str, Any], batches_max: int) -> SeenRows:
        """Parse `to_json`; raises `ValueError`, `KeyError`, `TypeError` or `AttributeError`."""
        seen = SeenRows(batches_max)
        for topic, writers in found.items():
            for writer, batches in writers.items():
                numbers = sorted(map(int, batches))
                if not numbers:
                    continue
                seen._writers[topic, writer] = numbers[-1]
                if len(numbers) >= batches_max:
                    seen._forgotten[topic, writer] = numbers[0]
                for batch, partitions in batches.items():
                    for partition, indexes in partitions.items():
                        unit = Unit(topic, writer, int(batch), int(partition))
                        seen._units[unit] = Indexes.from_json(indexes)
        return seen


def _names(property_texts: Any) -> Any:
    """The row name of each message, null if it has none; None if no message has one."""
    if not pc.any(pc.match_substring(property_texts, _PROPERTY_NAME)).as_py():
        return None
    found = pc.struct_field(pc.extract_regex(property_texts, _PROPERTY), 0)
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_decoded(name) for name in found.to_pylist()], pa.string())


def _decoded(name: bytes | None) -> str | None:
    try:
        return None if name is None else name.decode()
    except UnicodeDecodeError:
        return None


def _whole(texts: Any) -> Any:
    """As numbers; -1 for texts that are not numbers."""
    is_number = pc.match_substring_regex(texts, r"^\d{1,12}$")
    numbers = pc.if_else(is_number, texts, "-1").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.where(numbers < _INDEX_MAX, numbers, -1)


def _unit(topic: str, prefix: str) -> Unit | None:
    found = _PREFIX.fullmatch(prefix)
    return None if found is None else Unit(topic, found[1], int(found[2]), int(found[3]))
