"""Runs `rmq` as a shell would: real processes, their output, their exit codes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# For what hangs; a busy machine may take its time.
LIMIT_S = 300.0
# Bytecode is kept, as that of an installed package is, but not among the sources.
_BYTECODE = tempfile.TemporaryDirectory(prefix="rmq-bytecode-")
_NOT_PASSED_ON = frozenset({"NAMESRV_ADDR", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"})
_READY = re.compile(r"ready on (\S+?:\d+)")


class Ended(NamedTuple):
    """What a command left behind."""

    code: int
    output: bytes
    errors: str

    @property
    def error_lines(self) -> list[str]:
        return self.errors.splitlines()


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what would change the meaning of a command."""
    kept = {k: v for k, v in os.environ.items() if k not in _NOT_PASSED_ON}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": _BYTECODE.name, **changes}


def command(*arguments: str, flags: Sequence[str] = ()) -> list[str]:
    return [sys.executable, *flags, "-m", "broker_core", *arguments]


def run_rmq(*arguments: str, given: bytes = b"", **changes: str) -> Ended:
    """Run a command to its end."""
    done = subprocess.run(
        command(*arguments),
        input=given,
        capture_output=True,
        env=environment(**changes),
        timeout=LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr.decode())


@contextmanager
def killed_late(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """What hangs inside of the block does not hang the tests: its output ends."""
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.cancel()


class Server:
    """A server command that is running."""

    def __init__(self, process: subprocess.Popen[bytes], ready: str, errors: Path) -> None:
        self.process = process
        self.ready = ready
        self._errors = errors

    @property
    def address(self) -> str:
        found = _READY.search(self.ready)
        assert found, self.ready
        return found[1]

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    def end(self, number: int = signal.SIGTERM) -> Ended:
        """Send a signal and wait for the end."""
        self.process.send_signal(number)
        return self.ended()

    def ended(self) -> Ended:
        """Wait for the end; output does not include the ready line."""
        with killed_late(self.process):
            assert self.process.stdout is not None
            output = self.process.stdout.read()
            return Ended(self.process.wait(LIMIT_S), output, self.errors)


@contextmanager
def running(
    tmp_path: Path, *arguments: str, flags: Sequence[str] = (), stdin: int = subprocess.DEVNULL
) -> Iterator[Server]:
    """A server that serves; it is killed at the end unless it has ended."""
    errors = tmp_path / f"errors-{arguments[0]}.log"
    with (
        errors.open("wb") as log,
        subprocess.Popen(
            command(*arguments, flags=flags),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment(),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            with killed_late(process):
                ready = process.stdout.readline().decode()
            assert "ready" in ready, errors.read_text(encoding="utf-8")
            yield Server(process, ready, errors)
        finally:
            process.kill()


def listening(pid: int) -> list[tuple[str, str]]:
    """Addresses and ports, in hexadecimal, on which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        # Files are closed while we look.
        with suppress(FileNotFoundError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                host, _, port = fields[1].rpartition(":")
                found.append((host, port))
    return found
