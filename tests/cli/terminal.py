"""`rmq` as a person sees it: at a terminal."""

from __future__ import annotations

import codecs
import contextlib
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

from tests.cli.rmq_process import LIMIT_S, command, environment


class Terminal:
    """A running command, and everything that it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self._process = process
        self._master = master
        self.shown = ""
        # A read may end in the middle of a character.
        self._text = codecs.getincrementaldecoder("utf-8")()

    def until(self, text: str) -> None:
        """Wait until it shows a text."""
        self._read(lambda: text in self.shown)

    def until_last(self, start: str, lacks: str) -> None:
        """Wait for a screen, from `start` to the next, without a text."""
        begin = len(self.shown)

        def is_there() -> bool:
            screens = self.shown[begin:].split(start)
            return any(screen and lacks not in screen for screen in screens[1:-1])

        self._read(is_there)

    def interrupt(self) -> None:
        """As Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Its exit code, when it has shown everything."""
        code = self._process.wait(LIMIT_S)
        with contextlib.suppress(OSError):
            while select.select([self._master], [], [], 0)[0]:
                self.shown += self._text.decode(os.read(self._master, 65_536))
        return code

    def _read(self, is_there: Callable[[], bool]) -> None:
        end = time.monotonic() + LIMIT_S
        while not is_there():
            assert time.monotonic() < end, self.shown
            assert self._process.poll() is None, self.shown
            if select.select([self._master], [], [], 1)[0]:
                self.shown += self._text.decode(os.read(self._master, 65_536))


@contextlib.contextmanager
def at_terminal(*words: str) -> Iterator[Terminal]:
    """Run `rmq` with a terminal as its output."""
    master, slave = pty.openpty()
    try:
        with subprocess.Popen(
            command(*words),
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
            env={**environment(), "TERM": "xterm"},
        ) as process:
            try:
                yield Terminal(process, master)
            finally:
                process.kill()
    finally:
        os.close(slave)
        os.close(master)
