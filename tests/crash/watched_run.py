"""A seeded run of brokers on one simulated disk, judged as every crash on the way would leave it.

Before every file operation that changes what a crash may leave, the disk is taken as a kill and as
power cuts would leave it; a new broker goes on from there and is judged. Some of these brokers are
killed on the way, too. `killed_process` does the same to a real process with a real kill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from broker_core.protocol_codes import FlushDiskType
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.fakes.crash_states import CrashPoint
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk

MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"flush_disk_type": FlushDiskType.ASYNC_FLUSH},
}
STATES_PER_POINT = 3
SECOND_CRASH_EVERY = 3


class RunBroker(Protocol):
    """What a run asks of its brokers."""

    disk: SimulatedDisk
    store: MessageStore

    def restart(self) -> Any:
        """Clean stop; the next one."""

    def successor(self, disk: SimulatedDisk) -> Any:
        """The next one on what a crash left."""


Broker = TypeVar("Broker", bound=RunBroker)
Promise = TypeVar("Promise")


@dataclasses.dataclass
class _Point(Generic[Promise]):
    """A moment of the run: what a kill leaves, what power cuts may leave, what was promised."""

    number: int
    killed: SimulatedDisk
    cut: CrashPoint
    disk: SimulatedDisk
    version: int
    promise: Promise


class WatchedRun(Generic[Broker, Promise]):
    """One broker after the other on one disk, watched. Subclasses say what they do and promise."""

    second_crash_within: int

    def __init__(self, seed: int, settings: dict[str, Any]) -> None:
        self.rng = random.Random(seed)
        self.settings = {
            "commit_log_file_size": 16 << 10,
            "dispatch_checkpoint_interval_ms": 3_000,
            **settings,
        }
        self.judged = 0
        self.problems: list[str] = []
        self._point: _Point[Promise] | None = None
        self._clock = ManualClock()
        disk = SimulatedDisk(clock=self._clock, seed=seed)
        self._watch(disk)
        self.broker = self.started(disk)

    # Said by subclasses

    def started(self, disk: SimulatedDisk) -> Broker:
        """A broker on `disk`."""
        raise NotImplementedError

    def doings(self) -> list[Callable[[], None]]:
        """Each step is one of these."""
        raise NotImplementedError

    def promised(self) -> Promise:
        """What must hold from now on; not changed later."""
        raise NotImplementedError

    def finish(self, broker: Broker, promise: Promise) -> None:
        """Let a broker do all that is left to do."""
        raise NotImplementedError

    def problems_of(self, broker: Broker, promise: Promise) -> list[str]:
        """What is wrong then."""
        raise NotImplementedError

    # The run

    def run(self, steps: int) -> None:
        """Do as many things as `steps`, then judge the end as well."""
        doings = self.doings()
        for _ in range(steps):
            self.rng.choice(doings)()
            if self.problems:
                return
        self._judge_last()

    def other_traffic(self) -> None:
        self.broker.store.append(Message("other", bytes(self.rng.choice((50, 3_000)))))

    def restart(self) -> None:
        self.broker = self.broker.restart()

    def kill(self) -> None:
        disk = self.broker.disk.kill()
        self._watch(disk)
        self.broker = self.broker.successor(disk)

    def _watch(self, disk: SimulatedDisk) -> None:
        disk.on_operation = lambda number: self._before(disk, number)

    def _before(self, disk: SimulatedDisk, number: int) -> None:
        point = self._point
        if point is not None and point.disk is disk and point.version == disk._version:
            return
        self._judge_last()
        self._point = _Point(
            number, disk.copy(), disk.crash_point(), disk, disk._version, self.promised()
        )

    def _judge_last(self) -> None:
        point, self._point = self._point, None
        if point is None or self.problems:
            return
        disks = [("kill", point.killed)]
        for state in point.cut.states(STATES_PER_POINT, self.rng):
            disks.append((f"power cut, {state.describe()}", point.disk.reboot(state)))
        for what, disk in disks:
            found = self._judge(disk, point.promise)
            self.problems += [f"before operation {point.number}: {what}: {line}" for line in found]

    def _judge(self, disk: SimulatedDisk, promise: Promise) -> list[str]:
        self.judged += 1
        disk.clock = ManualClock(self._clock.wall_ms())
        if self.judged % SECOND_CRASH_EVERY == 0:
            disk.crash_at(self.rng.randint(1, self.second_crash_within))
            with contextlib.suppress(SimulatedCrash):
                self.finish(self.started(disk), promise)
            disk = disk.kill()
        broker = self.started(disk)
        self.finish(broker, promise)
        return self.problems_of(broker, promise)


def run_seeds(made: Callable[[int], WatchedRun[Any, Any]], seeds: int, steps: int) -> int:
    """Run them all, without problems; how many states were judged."""
    total = 0
    for seed in range(seeds):
        run = made(seed)
        run.run(steps)
        assert not run.problems, f"seed {seed}: " + "\n".join(run.problems[:10])
        total += run.judged
    return total


def first_problem(made: Callable[[int], WatchedRun[Any, Any]], steps: int) -> str:
    """What the first seeds find; for tests of the test, with a bug planted."""
    for seed in range(6):
        run = made(seed)
        run.run(steps)
        if run.problems:
            return "\n".join(run.problems)
    return ""


def killed_process(module: str, root: Path, mode: str, first: int, seconds: float) -> set[int]:
    """Run `module` on `root`, kill it after a while; the numbers that it printed whole.

    The while begins with the first number, however long that takes.
    """
    arguments = [sys.executable, "-m", module, str(root), mode, str(first)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines[0] == "ready\n"
        assert lines[1], "ended by itself"
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        else:
            raise AssertionError(f"ended by itself: {process.returncode}")
        lines += process.stdout.readlines()
    # The last line may be cut.
    return {int(line) for line in lines[1:] if line.endswith("\n")}
