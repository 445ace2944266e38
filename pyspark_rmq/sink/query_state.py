"""Decisions of a query about its sink, stored in its checkpoint if that is a local directory.

    <checkpoint>/rmq-sink/<sha256 of the sink>.json   {"v": 1, "sink": …, "coordinator": …, …}
    <driver folder>/rmq-sink/<of the query>-<of the sink>.json         for any other checkpoint

Brokers store the same for their own sinks. The file covers what they cannot know: the name of a
coordinator that is gone, and the guarantee of a query without any broker of this project.
For a checkpoint elsewhere, or one that is not an option of the write,
the file is on the driver's machine, under the id of the query.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlparse

from broker_core import errors
from pyspark_rmq.sink.driver_folder import driver_folder, remove_oldest

_log = logging.getLogger(__name__)

# Of queries whose checkpoint is not a local directory.
FILES_MAX: Final = 1_000
_FOLDER: Final = "rmq-sink"
_VERSION: Final = 1


class Decided(NamedTuple):
    """The decisions; an empty text means not decided yet."""

    coordinator: str = ""
    """The broker that decides about the batches of the sink."""
    guarantee: str = ""
    """What `deliveryGuarantee=auto` meant when the query first wrote."""


def checkpoint_path(checkpoint: str) -> Path | None:
    """The directory of a checkpoint; None for one that is not a local directory."""
    parsed = urlparse(checkpoint)
    if not checkpoint or parsed.scheme not in ("", "file") or parsed.netloc:
        return None
    return Path(unquote(parsed.path) if parsed.scheme else checkpoint)


class QueryState:
    """The file of one sink of a query."""

    def __init__(self, checkpoint: str, sink: str, query: str = "") -> None:
        """`query` is the id of the query; without it only a local checkpoint has a file."""
        folder = checkpoint_path(checkpoint)
        is_local = folder is not None and folder.is_dir()
        self._sink, self._query = sink, "" if is_local else query
        name = f"{_digest(sink)}.json"
        if self._query:
            folder, name = _driver_folder(), f"{_digest(query)}-{name}"
        self._path = None if folder is None else folder / _FOLDER / name

    @property
    def is_on_driver(self) -> bool:
        """Whether the checkpoint is not a local directory, and the file is on the driver."""
        return bool(self._query)

    def read(self) -> Decided:
        """The stored decisions. Raises `InvalidArgument` if the file cannot be read."""
        if self._path is None:
            return Decided()
        try:
            found = json.loads(self._path.read_bytes())
            texts = [found.get(name, "") for name in Decided._fields]
            is_known = found["v"] == _VERSION and all(isinstance(text, str) for text in texts)
            if self._query:
                # The files that were not used for longest are removed.
                os.utime(self._path)
        except FileNotFoundError:
            return Decided()
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise self._unreadable(str(error)) from error
        if not is_known:
            raise self._unreadable(f"this version reads version {_VERSION}")
        return Decided(*texts)

    def write(self, **changes: str) -> None:
        """Store decisions; durable when this returns.

        Raises `InvalidArgument` if the directory exists and cannot be written.
        """
        if self._path is None or not self._path.parent.parent.is_dir():
            return
        decided = self.read()._replace(**changes)
        text = json.dumps({"v": _VERSION, "sink": self._sink, **decided._asdict()})
        draft = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(exist_ok=True)
            with draft.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path)
            _sync(self._path.parent)
            _sync(self._path.parent.parent)
            if self._query:
                remove_oldest(self._path.parent, FILES_MAX)
        except OSError as error:
            where = "that directory" if self._query else "checkpointLocation"
            raise errors.InvalidArgument(
                f"{self._path} cannot be written: {error}. The user of the driver needs write"
                f" permission in {where}"
            ) from error

    def _unreadable(self, reason: str) -> errors.InvalidArgument:
        remedy = (
            "Remove it, if the brokers that the sink wrote to before can be reached"
            if self._query
            else "Restore it with the checkpoint that it belongs to"
        )
        return errors.InvalidArgument(
            f"{self._path}, which has the query's decisions about its sink, cannot be read:"
            f" {reason}. {remedy}"
        )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _driver_folder() -> Path | None:
    try:
        return driver_folder(create=True)
    except OSError as error:
        _log.warning("decisions of a sink are stored by brokers only: %s", error)
        return None


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
