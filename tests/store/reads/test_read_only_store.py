"""Reads of a store's files by a process that does not own it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.codec.records.column_names import QUEUE_OFFSET, VALUE
from broker_core.codec.wire.bodies.local_range import LocalRange
from broker_core.config import StoreConfig
from broker_core.errors import CorruptRecord, StoreUnusable
from broker_core.protocol_codes import FlushDiskType
from broker_core.store.message_store import MessageStore
from broker_core.store.reads import read_only_store
from broker_core.store.reads.read_only_store import ReadOnlyStore, UnitRun
from broker_core.store.writes.message import Message

COUNT = 300
WANTED = VALUE | QUEUE_OFFSET


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A running owner with several log files and queue files."""
    config = StoreConfig(
        commit_log_file_size=16 << 10,
        consume_queue_file_size=20 * 50,
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        # A machine that stands still during an append makes the next one look like too many.
        page_cache_busy_timeout_ms=120_000,
    )
    chance = random.Random(1)
    with MessageStore.open(tmp_path / "store", config) as opened:
        for number in range(COUNT):
            body = f"{number}:".encode() + chance.randbytes(chance.randrange(400))
            assert opened.append(Message("T", body)).ok
            opened.append(Message("U", b"between"))
        opened.flush()
        yield opened


def range_of(store: MessageStore, tmp_path: Path) -> LocalRange:
    return store.reads.local_range(str(tmp_path / "store"), "T", 0)


def runs_of(
    reader: ReadOnlyStore, place: LocalRange, start: int, until: int, **limits: int
) -> list[UnitRun]:
    limits = {"size_max": 1 << 20, "count_max": 1_000, **limits}
    return list(reader.runs(place, "T", 0, start, until, **limits))


def values(columns: dict[str, Any]) -> list[bytes]:
    data, offsets = columns["value"]
    ends = memoryview(offsets).cast("B").cast("i")
    raw = bytes(data)
    return [raw[ends[row] : ends[row + 1]] for row in range(len(ends) - 1)]


def expected(store: MessageStore, start: int, until: int) -> list[bytes]:
    return values(store.read_columns("T", 0, start, until, WANTED))


@pytest.mark.parametrize("limits", [{}, {"count_max": 7}, {"size_max": 900}, {"count_max": 1}])
@pytest.mark.parametrize("bounds", [(0, COUNT), (49, 51), (120, 121), (17, 290)])
def test_the_owners_rows_in_runs(
    store: MessageStore, tmp_path: Path, limits: dict[str, int], bounds: tuple[int, int]
) -> None:
    place = range_of(store, tmp_path)
    reader = ReadOnlyStore(place.layout)
    start, until = bounds
    runs = runs_of(reader, place, start, until, **limits)
    assert [run.first_offset for run in runs] == [
        start + sum(run.count for run in runs[:number]) for number in range(len(runs))
    ]
    assert max(run.count for run in runs) <= limits.get("count_max", 1_000)
    found = [value for run in runs for value in values(reader.columns("T", 0, run, WANTED))]
    assert found == expected(store, start, until)
    reader.close()
    reader.close()


def test_a_call_keeps_the_files_that_it_uses(
    store: MessageStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_only_store, "SEGMENTS_MAX", 2)
    place = range_of(store, tmp_path)
    assert store.log_range[1] > 4 * place.layout.segment_size
    reader = ReadOnlyStore(place.layout)
    runs = runs_of(reader, place, 0, COUNT)
    assert len(runs) > 1, "a run has records of two files at most"
    found = []
    for run in runs:
        found += values(reader.columns("T", 0, run, WANTED))
        assert len(reader._segments) <= 2
    assert found == expected(store, 0, COUNT)
    reader.close()


@pytest.mark.parametrize("bounds", [(-1, 5), (0, COUNT + 1), (10, 9)])
def test_offsets_outside_the_owners_bounds_are_refused(
    store: MessageStore, tmp_path: Path, bounds: tuple[int, int]
) -> None:
    place = range_of(store, tmp_path)
    reader = ReadOnlyStore(place.layout)
    with pytest.raises(StoreUnusable, match="not all readable"):
        runs_of(reader, place, *bounds)
    reader.close()


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("store_id", "0" * 32, "not 0000"),
        ("epoch", 99, "of epoch 99"),
        ("boot_id", "another", "another machine"),
        ("directory", "/nowhere-at-all", "nowhere-at-all"),
    ],
)
def test_another_store_is_refused(
    store: MessageStore, tmp_path: Path, field: str, value: Any, text: str
) -> None:
    layout = range_of(store, tmp_path).layout._replace(**{field: value})
    with pytest.raises(StoreUnusable, match=text):
        ReadOnlyStore(layout)


def test_damage_is_proven_by_a_second_look(store: MessageStore, tmp_path: Path) -> None:
    place = range_of(store, tmp_path)
    reader = ReadOnlyStore(place.layout)
    (run,) = runs_of(reader, place, 0, COUNT)
    segment = store._opened.log.segments.all[0]
    segment.view[100] ^= 1
    with pytest.raises(CorruptRecord) as caught:
        reader.columns("T", 0, run, WANTED)
    assert caught.value.path == f"{place.layout.directory}/commitlog/{0:020d}"
    segment.view[100] ^= 1
    assert values(reader.columns("T", 0, run, WANTED)) == expected(store, 0, COUNT)
    reader.close()


def test_entries_that_have_changed_are_not_damage(store: MessageStore, tmp_path: Path) -> None:
    """The owner has rebuilt the queue between the two reads."""
    place = range_of(store, tmp_path)
    reader = ReadOnlyStore(place.layout)
    (run,) = runs_of(reader, place, 0, 3)
    units = bytearray(run.units)
    # The size of the first record.
    units[11] ^= 1
    stale = run._replace(units=memoryview(bytes(units)))
    with pytest.raises(StoreUnusable, match="have changed"):
        reader.columns("T", 0, stale, WANTED)
    reader.close()


def test_entries_that_cannot_be_any_are_refused(store: MessageStore, tmp_path: Path) -> None:
    place = range_of(store, tmp_path)
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(5 * 20 + 8)
        file.write(bytes(4))
    reader = ReadOnlyStore(place.layout)
    with pytest.raises(StoreUnusable, match="invalid entries"):
        runs_of(reader, place, 0, 10)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(StoreUnusable, match="too short"):
        runs_of(reader, place, 0, 10)
    reader.close()


def test_files_below_the_start_of_the_log_are_released(store: MessageStore, tmp_path: Path) -> None:
    place = range_of(store, tmp_path)
    reader = ReadOnlyStore(place.layout)
    for run in runs_of(reader, place, 0, COUNT):
        reader.columns("T", 0, run, WANTED)
    size = place.layout.segment_size
    assert min(reader._segments) == 0
    reader.forget_below(2 * size + 1)
    assert min(reader._segments) == 2 * size
    reader.close()
