"""Decisions of a query about its sink, stored in its checkpoint if that is a local directory.

    <checkpoint>/rmq-sink/<sha256 of the sink>.json   {"v": 1, "sink": …, "coordinator": …, …}

Brokers store the same for their own sinks. The file covers what they cannot know: the name of a
coordinator that is gone, and the guarantee of a query without any broker of this project.
Checkpoints on other file systems have no such file.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlparse

from broker_core import errors

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

    def __init__(self, checkpoint: str, sink: str) -> None:
        folder = checkpoint_path(checkpoint)
        name = hashlib.sha256(sink.encode("utf-8", "replace")).hexdigest()[:32]
        self._path = None if folder is None else folder / _FOLDER / f"{name}.json"
        self._sink = sink

    def read(self) -> Decided:
        """The stored decisions. Raises `InvalidArgument` if the file cannot be read."""
        if self._path is None:
            return Decided()
        try:
            found = json.loads(self._path.read_bytes())
            texts = [found.get(name, "") for name in Decided._fields]
            is_known = found["v"] == _VERSION and all(isinstance(text, str) for text in texts)
        except FileNotFoundError:
            return Decided()
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise self._unreadable(str(error)) from error
        if not is_known:
            raise self._unreadable(f"this version reads version {_VERSION}")
        return Decided(*texts)

    def write(self, **changes: str) -> None:
        """Store decisions; durable when this returns.

        Raises `InvalidArgument` if the checkpoint directory exists and cannot be written.
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
        except OSError as error:
            raise errors.InvalidArgument(
                f"{self._path} cannot be written: {error}. The user of the driver needs write"
                " permission in checkpointLocation"
            ) from error

    def _unreadable(self, reason: str) -> errors.InvalidArgument:
        return errors.InvalidArgument(
            f"{self._path}, which has the query's decisions about its sink, cannot be read:"
            f" {reason}. Restore it with the checkpoint that it belongs to"
        )


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
