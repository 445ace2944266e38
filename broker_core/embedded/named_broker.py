"""The option `rmq.embedded=NAME`: finds the broker of that name or starts it.

Spark plans a query in short-lived Python processes below the JVM of the driver. A broker that one
of them starts belongs to the JVM and ends with it. `EmbeddedBroker.shared(NAME)` of the program
that has started the JVM returns the same broker.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker_core.embedded.broker_process import BrokerProcess
from broker_core.embedded.directory_removal import remove_tree
from broker_core.embedded.process_identity import birth_of, send_signal, wait_for_end
from broker_core.embedded.shared_brokers import (
    BrokerNote,
    check_name,
    find_shared,
    is_killed,
    new_note,
    one_starter,
    spark_driver,
    write_note,
)
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument
from broker_core.runtime.clock import SystemClock

LOG_FILE: Final = "broker.log"
STORE_DIR: Final = "store"
_START_TIMEOUT_S: Final = 120.0


def named_broker(name: str) -> str:
    """Name server of the shared broker `name`, which is started if there is none.

    Raises `InvalidArgument` if several could be meant, or if this process is not one of Spark's:
    what it starts would end with it.
    """
    name = check_name(name)
    found = find_shared(name)
    if found is not None:
        return found.name_server
    driver = spark_driver()
    if driver is None or is_killed(name):
        raise InvalidArgument(
            f"rmq.embedded={name}: no broker of this name runs on the driver's machine. Start it"
            f' in the program or notebook first: EmbeddedBroker.shared("{name}")'
        )
    # A broker that the program has killed is the program's to start again.
    with one_starter(name):
        found = find_shared(name)
        return (found or _started(name, driver)).name_server


def _started(name: str, owner_id: int) -> BrokerNote:
    directory = Path(tempfile.mkdtemp(prefix="rmq-"))
    arguments = [
        f"--exit-with-process={owner_id}:{birth_of(owner_id)}",
        "--port=0",
        "--broker-port=0",
        f"--store={directory / STORE_DIR}",
        f"--remove-when-orphaned={directory}",
        # As `EmbeddedBroker` has it.
        "--property=flushDiskType=ASYNC_FLUSH",
    ]
    process = BrokerProcess(arguments, directory, directory / LOG_FILE)
    try:
        name_server, address = process.wait_ready(SystemClock(), _START_TIMEOUT_S)
        note = new_note(name, (name_server, address), directory, process.process_id, owner_id)
        write_note(note)
    except BaseException:
        process.kill()
        remove_tree(directory)
        raise
    process.leave()
    return note


class ForeignProcess:
    """The process of a broker that another process has started; as `BrokerProcess` otherwise."""

    def __init__(self, note: BrokerNote) -> None:
        self._note = note

    @property
    def process_id(self) -> int:
        return self._note.process_id

    @property
    def exit_code(self) -> int | None:
        """None while it runs; its real exit code is known only to the process that started it."""
        is_there = birth_of(self._note.process_id) == self._note.process_birth
        return None if is_there else 0

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, if it is there."""
        if self.exit_code is None:
            send_signal(self._note.process_id, number)

    def stop(self, timeout_s: float) -> None:
        """Ask it to end; kill it when it does not in time."""
        self.send_signal(signal.SIGTERM)
        if not wait_for_end(self._note.process_id, timeout_s):
            self.kill()

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self.send_signal(signal.SIGKILL)
        wait_for_end(self._note.process_id, _START_TIMEOUT_S)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; False if it takes longer."""
        return wait_for_end(self._note.process_id, timeout_s)

    def request(self, command: Mapping[str, object], timeout_s: float) -> dict[str, object]:
        """Only the process that started a broker can control it."""
        raise EmbeddedBrokerFailed(
            f"the broker {self._note.name!r} was started by the option rmq.embedded, and only the"
            f' program that starts a broker can control it: call EmbeddedBroker.shared("'
            f'{self._note.name}") before the first query'
        )
