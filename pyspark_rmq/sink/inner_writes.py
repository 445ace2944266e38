"""One write of a `foreachBatch` function for each sink and batch.

A second one would be answered as a repeat of the first, and its rows would be dropped. The broker
knows which run published a batch, but a query that starts again only repeats it. So the writes of a
start are noted on the driver's machine, which the start does not outlive:

    <driver folder>/rmq-writes/<of the cluster, query and sink>.json   {"start": …, "batches": […]}
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from broker_core import errors
from pyspark_rmq.sink.driver_folder import driver_folder, remove_oldest
from pyspark_rmq.sink.sink_options import SinkOptions
from pyspark_rmq.sink.task.result import TaskIdentity

_log = logging.getLogger(__name__)

FILES_MAX: Final = 1_000
# Batches of one start: a function may number several writes itself.
BATCHES_KEPT: Final = 16
_FOLDER: Final = "rmq-writes"


@contextlib.contextmanager
def only_write(options: SinkOptions, task: TaskIdentity) -> Iterator[None]:
    """Around a publication. Raises `InvalidArgument` if the same start of the query has written
    this batch of the sink already, or is writing it. A write that fails may be repeated.
    """
    path = _path(options, task) if task.start else None
    if path is None:
        yield
        return
    try:
        is_second = not _changed(path, task, adds=True)
    except OSError as error:
        _log.warning("writes of a function are noted by brokers only: %s", error)
        yield
        return
    if is_second:
        raise second_write(task.sink, task.batch)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            _changed(path, task, adds=False)
        raise


def second_write(sink: str, batch: int) -> errors.InvalidArgument:
    """The error of a second write."""
    return errors.InvalidArgument(
        f"batch {batch} of sinkId {sink} was written by this run already:"
        " give every write inside foreachBatch a sinkId of its own"
    )


def _changed(path: Path, task: TaskIdentity, *, adds: bool) -> bool:
    """Add or remove a batch; False if it is to be added and was noted before."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        # Threads of the function and their processes wait for each other.
        fcntl.flock(file, fcntl.LOCK_EX)
        start, batches = _parsed(file.read())
        if not _is_same_start(start, task.start):
            batches = []
        is_noted = task.batch in batches
        if adds and is_noted:
            return False
        batches = [batch for batch in batches if batch != task.batch]
        if adds:
            batches.append(task.batch)
        file.seek(0)
        text = json.dumps({"start": task.start, "batches": batches[-BATCHES_KEPT:]})
        file.write(text.encode())
        file.truncate()
    return True


def _parsed(found: bytes) -> tuple[str, list[int]]:
    """Start and batches; nothing if a crash has damaged the file."""
    try:
        stored = json.loads(found)
        start, batches = stored["start"], stored["batches"]
    except (ValueError, KeyError, TypeError):
        return "", []
    is_valid = isinstance(start, str) and isinstance(batches, list)
    return (start, batches) if is_valid else ("", [])


def _is_same_start(one: str, other: str) -> bool:
    """Whether two texts name one start: a frame of another session adds that session to it."""
    mine, theirs = set(one.split("+")), set(other.split("+"))
    return mine <= theirs or theirs <= mine


def _path(options: SinkOptions, task: TaskIdentity) -> Path | None:
    servers = options.connection.name_servers
    name = hashlib.sha256(json.dumps([servers, task.query, task.sink]).encode()).hexdigest()[:32]
    try:
        folder = driver_folder(create=True)
        if folder is None:
            return None
        folder = folder / _FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{name}.json"
        if not path.exists():
            remove_oldest(folder, FILES_MAX)
    except OSError as error:
        _log.warning("writes of a function are noted by brokers only: %s", error)
        return None
    return path
