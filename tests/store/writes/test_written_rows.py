"""Rows that come together: written or stored through the map, the log is the same."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.protocol_codes import PutStatus
from broker_core.storage.log import commit_log
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import new_disk, open_small

HOST = encode_host(("127.0.0.1", 10911))
BODIES = [b"%d" % number * (number % 7) for number in range(100)]


def rows(bodies: list[bytes], text: bytes = b"") -> ColumnBatch:
    ends = [0]
    for body in bodies:
        ends.append(ends[-1] + len(body))
    texts = None
    if text:
        texts = (
            text * len(bodies),
            array("q", range(0, len(text) * len(bodies) + 1, len(text))),
            8,
        )
    return ColumnBatch(
        len(bodies), ((b"T", 0),), None, (b"".join(bodies), array("q", ends), 8), None, None, texts,
        born_timestamp=5, born_host=HOST, store_host=HOST,
    )  # fmt: skip


def opened(disk: SimulatedDisk, **settings: Any) -> MessageStore:
    store = open_small(disk, commit_log_file_size=64 << 10, **settings)
    assert store.append(Message("T", b"first", born_timestamp=5)).ok
    return store


def filled(appends: int) -> tuple[list[Any], dict[str, bytes]]:
    """What the appends answered, and the files of the log."""
    disk = new_disk()
    with opened(disk) as store:
        answers = [store.writes.append_rows(rows(BODIES, b"a\x01b\x02")) for _ in range(appends)]
        store.flush()
        assert store.offsets("T", 0)[1] == 1 + sum(
            answer.message_count for answer in answers if answer
        )
        files = {
            name: disk.open(f"commitlog/{name}", writable=False).read(0, 64 << 10)
            for name in disk.list("commitlog")
        }
    return answers, files


def test_the_log_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[str] = []
    plain: Callable[..., None] = commit_log.Segment.write

    def noted(segment: commit_log.Segment, data: memoryview) -> None:
        operations.append("written")
        plain(segment, data)

    monkeypatch.setattr(commit_log.Segment, "write", noted)
    # The last append finds no room for all of its rows.
    written = filled(6)
    assert operations == ["written"] * 6
    monkeypatch.setattr(commit_log, "WRITTEN_SIZE_MIN", commit_log.SCRATCH_SIZE)
    assert filled(6) == written
    assert operations == ["written"] * 6
    assert [answer.message_count for answer in written[0]][:5] == [100] * 5
    assert 0 < written[0][5].message_count < 100


def test_a_bad_row_leaves_nothing_behind() -> None:
    disk = new_disk()
    with opened(disk) as store:
        end = store.log_range[1]
        good = rows(BODIES)
        bad = good._replace(body=(good.body[0], array("q", [*good.body[1][:-1], 10**6]), 8))
        assert store.writes.append_rows(bad) is None
        assert store.log_range[1] == end
        assert not any(disk.open("commitlog/" + "0" * 20, writable=False).read(end, 9999))
        assert store.writes.append_rows(good).queue_offset == 1


def test_a_failed_write_is_the_last() -> None:
    disk = new_disk()
    store = opened(disk)
    store.flush()
    disk.fail(disk.operation_count + 1, errno.EIO, sticky=False, methods={"write"})
    assert store.writes.append_rows(rows(BODIES)) is None
    assert store.append(Message("T", b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.writes.append_rows(rows(BODIES)) is None
    store.close()
    with open_small(disk.reboot(), commit_log_file_size=64 << 10) as again:
        assert [found.body for found in again.get("T", 0, 0).messages()] == [b"first"]
