"""The process of an embedded broker, seen from the one that started it.

A separate process is independent of the application's crashes, pauses and event loop. It ends with
its owner: standard input is a pipe that only the owner holds, and the child also checks the id of
its parent process.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument
from broker_core.runtime.clock import Clock, SystemClock

_PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]
_READY = re.compile(r"rmq standalone ready on (\S+:\d+), broker on (\S+:\d+)\s*")
_READY_SIZE_MAX: Final = 4096
_LOGGED_ERROR: Final = ": error: "
_LOG_TAIL_LINES: Final = 20
_LOG_TAIL_SIZE: Final = 16 << 10


class BrokerProcess:
    """One run of `rmq standalone` or another server; `arguments` are its options."""

    def __init__(
        self, arguments: list[str], directory: Path, log_path: Path, command: str = "standalone"
    ) -> None:
        self._log_path = log_path
        # Tests may cause faults from several threads, and answers have no numbers.
        self._asking = threading.Lock()
        with log_path.open("ab") as log:
            # Not in the terminal's process group: an interrupt is meant for the application.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "broker_core", command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env=_environment(),
                bufsize=0,
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        """As the system knows it."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def wait_ready(
        self, clock: Clock, timeout_s: float, ready: re.Pattern[str] = _READY
    ) -> tuple[str, ...]:
        """The addresses in its first line; raises `EmbeddedBrokerFailed` with its reason."""
        line = self._line(clock, timeout_s, "was not ready")
        found = ready.fullmatch(line.decode("utf-8", "replace"))
        if found is None:
            raise self._failure(f"said {line[:200]!r}")
        return found.groups()

    def _line(self, clock: Clock, timeout_s: float, late: str) -> bytes:
        output = self._process.stdout
        assert output is not None
        line = b""
        deadline = clock.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            while b"\n" not in line and len(line) < _READY_SIZE_MAX:
                left_s = deadline - clock.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    raise self._failure(f"{late} within {timeout_s:g} s")
                chunk = output.read(_READY_SIZE_MAX)
                if not chunk:
                    self._process.wait()
                    raise self._ended()
                line += chunk
        return line

    def request(self, command: Mapping[str, object], timeout_s: float) -> dict[str, object]:
        """Request a fault or a later time from the broker; returns its answer.

        Raises `InvalidArgument` with the reason of a refusal, `EmbeddedBrokerFailed` if it has
        ended.
        """
        with self._asking:
            given = self._process.stdin
            assert given is not None
            try:
                given.write(json.dumps(command).encode() + b"\n")
            except OSError:
                raise self._failure("is gone") from None
            line = self._line(SystemClock(), timeout_s, "did not answer (is it paused?)")
        answer: dict[str, object] = json.loads(line)
        if not answer.pop("ok"):
            raise InvalidArgument(str(answer["error"]))
        return answer

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; False if it takes longer."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, timeout_s: float) -> None:
        """Ask it to end; kill it when it does not in time."""
        self._process.terminate()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._finish()

    def leave(self) -> None:
        """Let it run without this process. It must have been started to outlive this process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._process.kill()
        self._finish()

    def _finish(self) -> None:
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _ended(self) -> EmbeddedBrokerFailed:
        """The error that its log ends with, or the end of the log."""
        last = log_tail(self._log_path).rpartition("\n")[2]
        _, is_there, reason = last.partition(_LOGGED_ERROR)
        if is_there and self._process.returncode > 0:
            # `-p` of the command line is `properties` of the constructor.
            reason = reason.replace("option -p: ", "properties: ", 1)
            return EmbeddedBrokerFailed(f"the broker did not start: {reason}")
        return self._failure(f"ended with exit code {self._process.returncode}")

    def _failure(self, what: str) -> EmbeddedBrokerFailed:
        tail = log_tail(self._log_path)
        log = f"; the end of its log:\n{tail}" if tail else "; its log is empty"
        return EmbeddedBrokerFailed(f"the broker process {what}{log}")


def log_tail(path: Path) -> str:
    """The last lines of a log, of limited size."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _LOG_TAIL_SIZE))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return "\n".join(lines[-_LOG_TAIL_LINES:])


def _environment() -> dict[str, str]:
    """The environment of this process, in which this package can be imported from any directory."""
    given = os.environ.get("PYTHONPATH", "").split(":")
    paths = [str(_PACKAGE_ROOT), *(str(Path(path).resolve()) for path in given if path)]
    # Jupyter demands colours, and its log is searched and shown elsewhere.
    return {**os.environ, "NO_COLOR": "1", "PYTHONPATH": ":".join(dict.fromkeys(paths))}
