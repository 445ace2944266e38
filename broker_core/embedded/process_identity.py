"""Processes of this machine: their ancestors, and whether a process id still means the same
process.

Linux only. On other systems start time and ancestors of a process are unknown.
"""

from __future__ import annotations

import fcntl
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

GONE: Final = "gone"
_PROCESSES = Path("/proc")


def birth_of(process_id: int) -> str:
    """Start time of a process, in the kernel's ticks: process ids are reused.

    Empty where the system does not report it, `GONE` for a process that has ended.
    """
    if not _PROCESSES.joinpath("self", "stat").exists():
        return ""
    fields = _stat(process_id)
    return fields[19] if fields and fields[0] != "Z" else GONE


def ancestors_of(process_id: int) -> list[int]:
    """The process itself, its parent, and so on; without process 1."""
    found: list[int] = []
    while process_id > 1 and process_id not in found:
        found.append(process_id)
        fields = _stat(process_id)
        process_id = int(fields[1]) if fields else 0
    return found


def program_of(process_id: int) -> str:
    """Name of the program that a process runs; empty if it is gone."""
    try:
        return _PROCESSES.joinpath(str(process_id), "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def arguments_of(process_id: int) -> list[str]:
    """Command line of a process; empty if it is gone."""
    try:
        found = _PROCESSES.joinpath(str(process_id), "cmdline").read_bytes()
    except OSError:
        return []
    return [argument.decode("utf-8", "replace") for argument in found.split(b"\0") if argument]


def send_signal(process_id: int, number: int) -> None:
    """Send a signal to a process of this user; nothing happens if it has ended."""
    with suppress(ProcessLookupError):
        os.kill(process_id, number)


def wait_for_end(process_id: int, timeout_s: float) -> bool:
    """Wait until a process of this user has ended; False if it takes longer."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock; the end of the process releases it."""
    path.touch(mode=0o600)
    with path.open("rb+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stat(process_id: int) -> list[str]:
    """Fields of a process from the third on; empty if it is gone."""
    try:
        text = _PROCESSES.joinpath(str(process_id), "stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
