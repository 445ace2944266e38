"""Figures of batches pass through a file from the commit to the user's program."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from pyspark_rmq.sink import batch_log
from pyspark_rmq.sink.batch_log import SinkBatch, note_batch, noted_batches


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def batch(number: int, sink: str = "S") -> SinkBatch:
    offsets = {"T": {"broker-a": {0: (5, 8)}}}
    return SinkBatch(sink, number, "exactly_once", 3, 30, 0, 1, False, offsets)


def files(tmp_path: Path) -> list[Path]:
    return sorted(path for path in tmp_path.rglob("*.jsonl"))


def test_batches_are_read_in_order(tmp_path: Path) -> None:
    assert noted_batches("S") == []
    for number in range(3):
        note_batch(batch(number))
    note_batch(batch(0, "another"))
    assert noted_batches("S") == [batch(0), batch(1), batch(2)]
    folder = files(tmp_path)[0].parent
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files(tmp_path))


def test_a_line_that_was_cut_is_skipped(tmp_path: Path) -> None:
    note_batch(batch(0))
    (path,) = files(tmp_path)
    with path.open("ab") as file:
        file.write(b'{"sink": "S", "batch\n[]\n')
    note_batch(batch(1))
    assert noted_batches("S") == [batch(0), batch(1)]


def test_old_lines_go_when_the_file_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        note_batch(batch(number))
    monkeypatch.setattr(batch_log, "SIZE_MAX", 1)
    note_batch(batch(8))
    assert [found.batch_id for found in noted_batches("S")] == [4, 5, 6, 7, 8]


def test_a_folder_that_cannot_be_used_stops_no_batch(tmp_path: Path) -> None:
    (tmp_path / f"pyspark-rmq-{os.getuid()}").write_text("a file")
    note_batch(batch(0))
    assert noted_batches("S") == []


def test_the_line_of_text() -> None:
    assert batch(7).line() == (
        "batch 7 of sink S: 3 rows, 30 bytes, 0 too large, 1 retries, exactly_once,"
        " written as T/broker-a/0 5-8"
    )
    assert "had been published before as" in batch(7)._replace(is_repeat=True).line()
