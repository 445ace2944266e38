"""A trap is a file. The first process that passes its point removes it and kills the victim.

Works across all processes of a Spark application on one machine: it needs only a directory and an
atomic rename.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Final, NamedTuple

FOLDER_VARIABLE: Final = "RMQ_PROVE_DIR"

DRIVER: Final = "driver"
BROKER: Final = "broker"
WORKER: Final = "worker"
QUERY: Final = "query"
VICTIMS: Final = (DRIVER, BROKER, WORKER, QUERY)
# With a slave only: the slave dies, or the master dies and the slave is promoted.
SLAVE: Final = "slave"
PROMOTION: Final = "promotion"
REPLICATED_VICTIMS: Final = (SLAVE, PROMOTION)

# In the order of a batch
POINTS: Final = (
    "write_before",
    "write_middle",
    "write_after",
    "commit_before",
    "commit_middle",
    "commit_after",
)


class Trap(NamedTuple):
    """Victim and point of a kill."""

    point: str
    victim: str

    def __str__(self) -> str:
        return f"{self.victim} at {self.point}"


def arm(folder: Path, trap: Trap) -> None:
    """Arm a trap: the first process that passes its point kills the victim."""
    _write(folder / "trap.json", [trap.point, trap.victim])


def disarm(folder: Path) -> bool:
    """Remove the trap; True if it was still armed."""
    return _taken(folder / "trap.json", folder / "disarmed.json")


def was_sprung(folder: Path) -> bool:
    """Whether the trap was triggered."""
    return not (folder / "trap.json").exists()


def pass_point(point: str) -> None:
    """Trigger the trap, if one is armed for this point."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    armed, taken = folder / "trap.json", folder / f"sprung-{os.getpid()}.json"
    try:
        text = armed.read_text()
        wanted, victim = json.loads(text)
    except (OSError, ValueError):
        return
    if wanted != point or not _taken(armed, taken):
        return
    if taken.read_text() != text:
        # Another process was faster, and this is the next trap.
        taken.rename(armed)
        return
    for process in _victims(folder, victim):
        _kill(process)


def name_processes(folder: Path, victim: str, processes: list[int]) -> None:
    """Record the processes of a victim."""
    _write(folder / f"{victim}.json", processes)


def _victims(folder: Path, victim: str) -> list[int]:
    if victim == WORKER:
        return [os.getpid()]
    if victim == QUERY:
        # The driver polls for this file and stops the query.
        (folder / "stop-query").touch()
        return []
    owner = BROKER if victim == PROMOTION else victim
    found: list[int] = json.loads((folder / f"{owner}.json").read_text())
    return found


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _write(path: Path, value: object) -> None:
    draft = path.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(value))
    draft.rename(path)


def _taken(path: Path, target: Path) -> bool:
    try:
        path.rename(target)
    except FileNotFoundError:
        return False
    return True
