"""Ledger of acknowledged rows, stored outside the broker and synced.

One line per row: name, SHA-256 of its body, and the message id from the broker. If the broker loses
an acknowledged message, the ledger still has it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    """One row; `message_id` is `-` if there was no answer."""

    name: str
    digest: str
    message_id: str


def digest_of(body: str) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(body.encode()).hexdigest()


def name_of(body: str) -> str:
    """Bodies are a name, a colon and random text."""
    return body.partition(":")[0]


class Ledger:
    """An append-only file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, entries: Iterable[Entry]) -> None:
        """Append entries; durable when this returns."""
        lines = "".join(" ".join(entry) + "\n" for entry in entries)
        with self.path.open("a", encoding="ascii") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())

    def digests(self) -> dict[str, str]:
        """Name -> digest of every entry; raises `ValueError` for a line that is not one."""
        if not self.path.exists():
            return {}
        found: dict[str, str] = {}
        for line in self.path.read_text(encoding="ascii").splitlines():
            entry = Entry(*line.split(" ")) if line.count(" ") == 2 else None
            if entry is None or entry.name in found:
                raise ValueError(f"{self.path}: {line!r:.120} is not a new row")
            found[entry.name] = entry.digest
        return found
