"""Owns brokers and driver, sends rows, arms traps and restarts killed processes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from broker_core import errors
from pyspark_rmq.prove.brokers import Brokers, MasterAndSlave, OneBroker
from pyspark_rmq.prove.comparison import Comparison, compare_bodies, judge_intake
from pyspark_rmq.prove.killing_sink import LOSE_ACKNOWLEDGED, PLANT_VARIABLE
from pyspark_rmq.prove.ledger import Entry, Ledger, digest_of, name_of
from pyspark_rmq.prove.reader_command import read_by_command
from pyspark_rmq.prove.stored_bodies import stored_bodies
from pyspark_rmq.prove.traps import (
    BROKER,
    FOLDER_VARIABLE,
    PROMOTION,
    Trap,
    arm,
    disarm,
    name_processes,
    was_sprung,
)

SOURCE: Final = "prove_in"
TARGET: Final = "prove_out"
# Readers: a client, and the user's command. Readers of files are named by their store.
PULL: Final = "client"
COMMAND: Final = "command"
_POLL_S: Final = 0.1


class Proof(NamedTuple):
    """Result of a run."""

    kills: int
    batches: int
    driver_starts: int
    broker_starts: int
    promotions: int
    # Acknowledged rows, and how many of them the source topic does not have exactly once
    acknowledged: int
    missing: int
    # Comparison of input and output, by reader
    comparisons: dict[str, Comparison]

    @property
    def comparison(self) -> Comparison:
        """Comparison of the client's reader."""
        return self.comparisons[PULL]

    @property
    def is_exact(self) -> bool:
        """Rows were acknowledged, none is missing, and every reader found each exactly once."""
        found = self.comparisons.values()
        return self.acknowledged > 0 and not self.missing and all(c.is_exact for c in found)


class Harness:
    """One run in one directory. `say` gets a line for every kill."""

    def __init__(
        self,
        folder: Path,
        say: Callable[[str], object],
        *,
        plant: str = "",
        spark: bool = True,
        replicated: bool = False,
        reader: str = "",
        rows_per_kill: int = 300,
        timeout_s: float = 300.0,
    ) -> None:
        self._folder = folder
        self._say = say
        self._plant = plant
        self._reader = reader
        self._attempted = Ledger(folder / "attempted.ledger")
        self._acknowledged = Ledger(folder / "acknowledged.ledger")
        self._module = f"pyspark_rmq.prove.{'driver' if spark else 'rehearsal'}"
        self._rows_per_kill = rows_per_kill
        self._polls_max = int(timeout_s / _POLL_S)
        self._pause = threading.Event()
        topics = {SOURCE: 4, TARGET: 4}
        self._brokers: Brokers = (
            MasterAndSlave(folder / "stores", topics)
            if replicated
            else OneBroker(folder / "store", topics)
        )
        # Whether the slave replaces a dead master
        self._promotes = False
        self._driver: subprocess.Popen[bytes] | None = None
        self._driver_starts = 0
        self._sent = 0

    def __enter__(self) -> Harness:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_driver()
        self._brokers.stop()

    def run(self, traps: Iterable[Trap]) -> Proof:
        """Trigger all traps, finish the query and compare."""
        kills = 0
        for trap in traps:
            # The driver starts after rows and trap: the first batch has all rows, and a fast driver
            # does not pass the point before the trap is armed.
            self._tend_brokers()
            self._promotes = trap.victim == PROMOTION
            victims = self._victims(trap)
            arm(self._folder, trap)
            self._send()
            if self._wait(lambda: was_sprung(self._folder)):
                self._await_end(victims)
                kills += 1
                self._say(f"{kills}: {trap}")
            elif disarm(self._folder):
                raise errors.RequestTimeout(
                    f"no process reached the trap for {trap}: {self.log_end()}"
                )
        self._tend_brokers()
        self._send()
        (self._folder / "finish").touch()
        if not self._wait(lambda: self._driver is not None and self._driver.poll() == 0):
            raise errors.RequestTimeout(f"not all rows were written: {self.log_end()}")
        self._tend_brokers()
        return self._judged(kills)

    def log_end(self) -> str:
        """The end of the driver's log."""
        log = self._folder / "driver.log"
        return log.read_text(errors="replace")[-3_000:] if log.exists() else ""

    def _judged(self, kills: int) -> Proof:
        """Compare the output, by every reader, with the ledger."""
        intake = judge_intake(
            self._attempted.digests(),
            self._acknowledged.digests(),
            self._brokers.consume(SOURCE),
        )
        found = {PULL: self._brokers.consume(TARGET)}
        if self._reader:
            found[COMMAND] = read_by_command(self._reader, self._brokers.options, TARGET)
        starts = self._brokers.starts
        for name, store in self._brokers.close_stores().items():
            found[name] = stored_bodies(store, TARGET)
        return Proof(
            kills,
            len(list((self._folder / "checkpoint" / "commits").glob("[0-9]*"))),
            self._driver_starts,
            starts,
            self._brokers.promotions,
            intake.acknowledged,
            intake.missing,
            {name: compare_bodies(intake.digests, bodies) for name, bodies in found.items()},
        )

    def _wait(self, is_done: Callable[[], bool]) -> bool:
        """Wait and restart dead processes; False on timeout."""
        for _ in range(self._polls_max):
            if is_done():
                return True
            self._tend()
            self._pause.wait(_POLL_S)
        return False

    def _victims(self, trap: Trap) -> set[int]:
        """The broker processes that the trap kills."""
        owner = BROKER if trap.victim == PROMOTION else trap.victim
        return set(self._brokers.processes().get(owner, ()))

    def _await_end(self, victims: set[int]) -> None:
        """Wait until killed brokers have ended.

        The trap is gone before its victim is. The next trap, set meanwhile, could kill the master
        while its slave is away.
        """
        for _ in range(self._polls_max):
            if not victims & self._brokers.running():
                return
            self._pause.wait(_POLL_S)
        raise errors.RequestTimeout(f"the killed processes {sorted(victims)} do not end")

    def _tend(self) -> None:
        self._tend_brokers()
        finished = (self._folder / "finish").exists()
        if self._driver is None or self._driver.poll() is not None:
            if finished and self._driver is not None and self._driver.poll() == 0:
                return
            self._start_driver()

    def _tend_brokers(self) -> None:
        if self._brokers.tend(promotes=self._promotes):
            self._promotes = False
            for victim, processes in self._brokers.processes().items():
                name_processes(self._folder, victim, processes)

    def _start_driver(self) -> None:
        self._end_driver()
        environment = {
            **os.environ,
            FOLDER_VARIABLE: str(self._folder),
            PLANT_VARIABLE: self._plant,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        arguments = [json.dumps(self._brokers.options), SOURCE, TARGET]
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", self._module, *arguments],
                env=environment,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                # A session of its own, so that all of its processes can be killed.
                start_new_session=True,
            )
        self._driver_starts += 1

    def _end_driver(self) -> None:
        """Kill the driver, its JVM and their workers."""
        if self._driver is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait()
        self._driver = None

    def _send(self) -> None:
        """Send new rows and add the acknowledged ones to the ledger."""
        if not self._wait(self._has_sent):
            raise errors.RequestTimeout(f"the broker accepts no rows: {self._brokers}")

    def _has_sent(self) -> bool:
        numbers = range(self._sent, self._sent + self._rows_per_kill)
        self._sent += len(numbers)
        # Every send uses new names, also after an error.
        bodies = [f"m{number}:{secrets.token_hex(8)}" for number in numbers]
        self._attempted.add(Entry(name_of(body), digest_of(body), "-") for body in bodies)
        lost = bodies[:1] if self._plant == LOSE_ACKNOWLEDGED else []
        answers = self._brokers.produce(SOURCE, bodies[len(lost) :])
        answers.update(dict.fromkeys(lost, "PLANTED"))
        self._acknowledged.add(
            Entry(name_of(body), digest_of(body), message_id)
            for body, message_id in answers.items()
        )
        # Fewer if the broker was killed meanwhile.
        return len(answers) == len(bodies)
