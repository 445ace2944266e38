"""Figures of committed batches: a log line and a line of JSON in a file for each batch.

Spark commits in a separate process on the driver's machine, so figures reach the user's program
through a file; `pyspark_rmq.progress.sink_batches` reads it. One file per sink, in a directory that
only this user can read. Old lines are removed when it grows.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark_rmq.sink.driver_folder import driver_folder

_log = logging.getLogger(__name__)

SIZE_MAX: Final = 1 << 20

# topic -> broker name -> queue id -> (first offset, offset after the last)
Offsets = dict[str, dict[str, dict[int, tuple[int, int]]]]


class SinkBatch(NamedTuple):
    """One batch of one sink."""

    sink: str
    batch_id: int
    guarantee: str
    rows: int
    size: int
    """Bytes of all bodies."""
    oversize: int
    """Rows that were dropped or cut because they were too large."""
    retries: int
    """Requests that were sent again."""
    is_repeat: bool
    """It was published before, by a run that died before Spark recorded the commit."""
    offsets: Offsets
    """Its offsets. With at_least_once, other producers may have written in between."""

    def line(self) -> str:
        """The figures as one line of text."""
        places = ", ".join(
            f"{topic}/{broker}/{queue} {first}-{after}"
            for topic, brokers in sorted(self.offsets.items())
            for broker, queues in sorted(brokers.items())
            for queue, (first, after) in sorted(queues.items())
        )
        verb = "had been published before as" if self.is_repeat else "written as"
        return (
            f"batch {self.batch_id} of sink {self.sink}: {self.rows} rows, {self.size} bytes,"
            f" {self.oversize} too large, {self.retries} retries, {self.guarantee}, {verb} {places}"
        )


def note_batch(batch: SinkBatch) -> None:
    """Log a batch and store its figures. A failing disk is logged and otherwise ignored."""
    _log.info("%s", batch.line())
    try:
        path = _path(batch.sink, create=True)
        if path is None:
            return
        if path.exists() and path.stat().st_size > SIZE_MAX:
            _shorten(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(json.dumps(batch._asdict()).encode() + b"\n")
    except OSError as error:
        _log.debug("the figures of a batch were not stored: %s", error)


def noted_batches(sink: str) -> list[SinkBatch]:
    """Stored batches, oldest first."""
    path = _path(sink, create=False)
    if path is None or not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        try:
            batch = _parsed(json.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError):
            # Truncated by a crash, or written by another version.
            continue
        if batch.sink == sink:
            found.append(batch)
    return found


def _parsed(found: dict[str, Any]) -> SinkBatch:
    offsets = {
        topic: {
            broker: {int(queue): (first, after) for queue, (first, after) in queues.items()}
            for broker, queues in brokers.items()
        }
        for topic, brokers in found.pop("offsets").items()
    }
    return SinkBatch(**found, offsets=offsets)


def _shorten(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_bytes(b"".join(lines[len(lines) // 2 :]))
    draft.replace(path)


def _path(sink: str, *, create: bool) -> Path | None:
    folder = driver_folder(create=create)
    if folder is None:
        return None
    return folder / f"{hashlib.sha256(sink.encode()).hexdigest()[:32]}.jsonl"
