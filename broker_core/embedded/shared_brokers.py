"""Brokers by name: `EmbeddedBroker.shared(name)` and the option `rmq.embedded` find them.

The process that starts a shared broker writes a note with its address into a directory that only
this user can read. Spark plans queries in other processes, which find the address there: first a
broker of the program that they belong to, otherwise the only one of that name. A Spark that a
Python program has started does not use the brokers of other programs.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from broker_core.embedded.process_identity import (
    ancestors_of,
    arguments_of,
    birth_of,
    locked,
    program_of,
)
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument

# Argument of every JVM that a Python program starts for itself.
_OF_A_PROGRAM = "pyspark-shell"
_JVM = "java"


class BrokerNote(NamedTuple):
    """One running shared broker."""

    name: str
    name_server: str
    address: str
    """Of the broker itself."""
    directory: str
    """Temporary directory with its log."""
    owner_id: int
    """Process that the broker ends with."""
    owner_birth: str
    process_id: int
    """Process of the broker."""
    process_birth: str
    store: str = ""
    """Directory that is kept; empty for a temporary one."""

    @property
    def is_alive(self) -> bool:
        """Whether the broker and its owner run."""
        return self.is_running and self.has_owner

    @property
    def has_owner(self) -> bool:
        """Whether its owner runs."""
        return birth_of(self.owner_id) == self.owner_birth

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return birth_of(self.process_id) == self.process_birth


def check_name(name: object) -> str:
    """The name, if a shared broker can have it; raises `InvalidArgument` otherwise."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise InvalidArgument(f"{name!r:.80} cannot name a broker: give a text such as 'demo'")
    return name.strip()


def new_note(
    name: str,
    addresses: tuple[str, str],
    directory: Path,
    process_id: int,
    owner_id: int,
    store: Path | None = None,
) -> BrokerNote:
    """The note of a running broker with the `addresses` of its name server and itself."""
    return BrokerNote(
        name,
        *addresses,
        str(directory),
        owner_id,
        birth_of(owner_id),
        process_id,
        birth_of(process_id),
        "" if store is None else str(store.resolve()),
    )


def write_note(note: BrokerNote) -> Path:
    """Write the note of a broker; returns the file, to be removed when it stops."""
    path = _folder(create=True) / _file_name(note.name, note.owner_id)
    for other, noted in _notes():
        # The owner was killed. A note with an owner stays: its broker may be started again.
        if not noted.has_owner:
            other.unlink(missing_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.draft")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(note._asdict()), encoding="utf-8")
    draft.replace(path)
    return path


def note_path(note: BrokerNote) -> Path:
    """Where the note of a broker is."""
    return _folder(create=False) / _file_name(note.name, note.owner_id)


@contextmanager
def one_starter(name: str) -> Iterator[None]:
    """Keep other processes of this user from starting a broker of this name meanwhile."""
    lock = _folder(create=True) / f"{_file_name(name, 0).removesuffix('.json')}.lock"
    with locked(lock):
        yield


def spark_driver() -> int | None:
    """The JVM that this process was started by; None if there is none."""
    return next((n for n in ancestors_of(os.getpid()) if program_of(n) == _JVM), None)


def find_shared(name: str) -> BrokerNote | None:
    """The running shared broker `name`; raises `InvalidArgument` if several could be meant."""
    name = check_name(name)
    notes = [note for _, note in _notes() if note.name == name and note.is_alive]
    mine = ancestors_of(os.getpid())
    chosen = [note for note in notes if _is_related(note.owner_id, mine)]
    driver = spark_driver()
    if not chosen and (driver is None or _OF_A_PROGRAM not in arguments_of(driver)):
        chosen = notes
    if len(chosen) > 1:
        found = ", ".join(f"{note.name_server} of process {note.owner_id}" for note in chosen)
        raise InvalidArgument(
            f"rmq.embedded={name}: several brokers have this name ({found}). Give the address of"
            " one as rmq.namesrv.addr instead"
        )
    return chosen[0] if chosen else None


def is_killed(name: str) -> bool:
    """Whether the program of this process has a broker of that name that does not run now.

    Only the program starts it again. A broker of Spark's JVM is started by the next query that
    needs it.
    """
    mine = ancestors_of(os.getpid())
    return any(
        note.name == name
        and not note.is_running
        and note.has_owner
        and program_of(note.owner_id) != _JVM
        and _is_related(note.owner_id, mine)
        for _, note in _notes()
    )


def left_behind(store: Path) -> BrokerNote | None:
    """A broker that has this store open although its owner, a kernel that was killed, is gone."""
    for _, note in _notes():
        if note.store == str(store) and note.is_running and not note.is_alive:
            return note
    return None


def open_elsewhere(store: Path) -> BrokerNote | None:
    """The shared broker of another running program that has this store open."""
    for _, note in _notes():
        if note.store == str(store) and note.is_alive and note.owner_id != os.getpid():
            return note
    return None


def find_own(name: str) -> BrokerNote | None:
    """A broker that Spark has started below this process, for the option `rmq.embedded`."""
    for _, note in _notes():
        is_below = os.getpid() in ancestors_of(note.owner_id)[1:]
        if note.name == name and is_below and note.is_alive:
            return note
    return None


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


def _is_related(owner_id: int, mine: list[int]) -> bool:
    """Whether the owner is above this process, or both are below one Spark driver (a JVM)."""
    if owner_id in mine:
        return True
    drivers = [number for number in mine if program_of(number) == _JVM]
    return any(driver in ancestors_of(owner_id) for driver in drivers)
