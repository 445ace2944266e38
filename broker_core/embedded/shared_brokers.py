"""Brokers by name: `EmbeddedBroker.shared(name)` and the option `rmq.embedded` find them.

The process that starts a shared broker writes a note with its address into a directory that only
this user can read. Spark plans queries in other processes, which find the address there: first a
broker of the process that they descend from, otherwise the only one of that name.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument

_PROCESSES = Path("/proc")


class BrokerNote(NamedTuple):
    """One running shared broker."""

    name: str
    name_server: str
    owner_id: int
    """Process that started the broker."""
    owner_birth: str
    process_id: int
    """Process of the broker."""
    process_birth: str


def check_name(name: object) -> str:
    """The name of a shared broker, unless it is none."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidArgument(f"{name!r:.80} cannot name a broker: give a text such as 'demo'")
    return name.strip()


def write_note(name: str, name_server: str, process_id: int) -> Path:
    """Make a broker of this process known; returns the file, to be removed when it stops."""
    path = _folder(create=True) / _file_name(name, os.getpid())
    for other, noted in _notes():
        # Its owner was killed.
        if not _is_alive(noted):
            other.unlink(missing_ok=True)
    note = BrokerNote(
        name, name_server, os.getpid(), _birth(os.getpid()), process_id, _birth(process_id)
    )
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(note._asdict()), encoding="utf-8")
    draft.replace(path)
    return path


def shared_address(name: str) -> str:
    """Name server of the shared broker `name`; raises `InvalidArgument` if there is none."""
    name = check_name(name)
    notes = [note for _, note in _notes() if note.name == name and _is_alive(note)]
    mine = _ancestors(os.getpid())
    related = [note for note in notes if _is_related(note.owner_id, mine)]
    chosen = related or notes
    if not chosen:
        raise InvalidArgument(
            f"rmq.embedded={name}: no broker of this name runs on the driver's machine. Start it"
            f' in the program or notebook first: EmbeddedBroker.shared("{name}")'
        )
    if len(chosen) > 1:
        found = ", ".join(f"{note.name_server} of process {note.owner_id}" for note in chosen)
        raise InvalidArgument(
            f"rmq.embedded={name}: several brokers have this name ({found}). Give the address of"
            " one as rmq.namesrv.addr instead"
        )
    return chosen[0].name_server


def _notes() -> Iterator[tuple[Path, BrokerNote]]:
    try:
        paths = list(_folder(create=False).glob("broker-*.json"))
    except (OSError, EmbeddedBrokerFailed):
        return
    for path in paths:
        try:
            found: Any = json.loads(path.read_text(encoding="utf-8"))
            note = BrokerNote(**found)
        except (OSError, ValueError, TypeError):
            # Removed meanwhile, or of another version.
            continue
        yield path, note


def _folder(*, create: bool) -> Path:
    # The sink keeps its figures in the same directory.
    folder = Path(tempfile.gettempdir()) / f"pyspark-rmq-{os.geteuid()}"
    if create:
        folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise EmbeddedBrokerFailed(
            f"{folder} belongs to another user, so that a shared broker cannot be made known there;"
            " set TMPDIR to a directory of your own"
        )
    return folder


def _file_name(name: str, owner_id: int) -> str:
    return f"broker-{owner_id}-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def _is_alive(note: BrokerNote) -> bool:
    return (
        _birth(note.owner_id) == note.owner_birth and _birth(note.process_id) == note.process_birth
    )


def _birth(process_id: int) -> str:
    """When a process was started, in the kernel's count: a number may be given out again.

    Empty where the system does not tell, "gone" for a process that has ended.
    """
    if not _PROCESSES.joinpath("self", "stat").exists():
        return ""
    fields = _stat(process_id)
    return fields[19] if fields and fields[0] != "Z" else "gone"


def _stat(process_id: int) -> list[str]:
    """Fields of a process from the third on; empty if it is gone."""
    try:
        text = _PROCESSES.joinpath(str(process_id), "stat").read_text(encoding="utf-8")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _ancestors(process_id: int) -> list[int]:
    """The process itself, its parent, and so on."""
    found = []
    while process_id > 1 and process_id not in found:
        found.append(process_id)
        fields = _stat(process_id)
        process_id = int(fields[1]) if fields else 0
    return found


def _is_related(owner_id: int, mine: list[int]) -> bool:
    """Whether the owner is above this process, or both are below one Spark driver (a JVM)."""
    if owner_id in mine:
        return True
    drivers = [number for number in mine if _command(number) == "java"]
    return any(driver in _ancestors(owner_id) for driver in drivers)


def _command(process_id: int) -> str:
    try:
        return _PROCESSES.joinpath(str(process_id), "comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
