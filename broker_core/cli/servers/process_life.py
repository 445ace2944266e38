"""Life cycle of a server process: start, one line when it serves, clean stop.

It ends on SIGTERM, SIGINT or SIGHUP and, optionally, when its parent process ends. The first signal
requests a clean stop; a second one has its default effect.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from broker_core.cli.event_loop import run_on_loop
from broker_core.cli.exit_codes import DONE, CommandFailed
from broker_core.embedded.process_identity import birth_of
from broker_core.runtime.malloc_tuning import keep_freed_memory, return_free_memory

_log = logging.getLogger(__name__)

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PARENT_POLL_S: Final = 0.5
# New objects between two garbage collections: requests leave next to none behind.
_GARBAGE_THRESHOLD: Final = 10_000
_LINE_SIZE_MAX: Final = 64 << 10
_STANDARD_INPUT: Final = Path("/dev/stdin")


class Service(Protocol):
    """Interface of the servers that commands run."""

    async def start(self) -> str:
        """Begin to serve; returns the line to print, with the address."""

    async def stop(self) -> None:
        """Answer what is in flight, save everything, end."""


class LifeOptions(NamedTuple):
    """Options of the process, from the command line."""

    pid_file: Path | None = None
    exit_with_parent: bool = False
    exit_with_process: tuple[int, str] | None = None
    """Number and birth of a process that this one ends with."""
    log_level: str = "info"
    log_format: str = "text"


def life_options(options: argparse.Namespace) -> LifeOptions:
    """From the options that `add_process_options` added."""
    return LifeOptions(
        options.pid_file,
        options.exit_with_parent,
        getattr(options, "exit_with_process", None),
        options.log_level,
        options.log_format,
    )


class OwnerControl(NamedTuple):
    """For brokers of tests: what the process that has started this one may do."""

    answer: Callable[[str], Coroutine[Any, Any, str]]
    """The line to print for one line of standard input."""
    time: Callable[[], float] | None = None
    """Clock of the event loop, which the owner moves; None: the machine's."""


def run_service(
    service: Service,
    options: LifeOptions,
    when_orphaned: Callable[[], None] | None = None,
    control: OwnerControl | None = None,
) -> int:
    """Serve until the process is told to end; returns the exit code.

    `when_orphaned` is called last if the parent has ended.
    """
    _log_to_stderr(options.log_level, options.log_format)
    keep_freed_memory()
    has_clock = control is not None and control.time is not None
    is_orphan = run_on_loop(_serve(service, options, control), plain=has_clock)
    if is_orphan and when_orphaned is not None:
        when_orphaned()
    return DONE


async def _serve(service: Service, options: LifeOptions, control: OwnerControl | None) -> bool:
    if control is not None and control.time is not None:
        # All timers of the process use this clock.
        asyncio.get_running_loop().time = control.time  # type: ignore[method-assign]
    end = _End(None if control is None else control.answer)
    end.on_signals()
    if options.exit_with_parent:
        await end.with_parent()
    if options.exit_with_process is not None:
        end.with_process(*options.exit_with_process)
    try:
        ready = await service.start()
    except BaseException:
        # Files and sockets that were opened before the failure.
        await service.stop()
        raise
    try:
        # Objects made so far live until the end. Scanning them in every garbage collection would
        # delay requests by milliseconds.
        gc.freeze()
        gc.set_threshold(_GARBAGE_THRESHOLD)
        return_free_memory()
        if not end.is_asked:
            _write_pid(options.pid_file)
            print(ready, flush=True)
        _log.info("stopping: %s", await end.reason())
    finally:
        await service.stop()
        end.forget_parent()
        _remove_pid(options.pid_file)
    return end.is_orphan


class _End:
    """The event that ends the process; keeps the first reason."""

    def __init__(self, answer: Callable[[str], Coroutine[Any, Any, str]] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer = answer
        self._answering: set[asyncio.Task[None]] = set()
        self._reason: asyncio.Future[str] = self._loop.create_future()
        self.is_orphan = False
        """Whether the reason is that the parent is gone."""
        self._parent_id = os.getppid()
        self._timer: asyncio.TimerHandle | None = None
        self._input: asyncio.BaseTransport | None = None

    @property
    def is_asked(self) -> bool:
        return self._reason.done()

    async def reason(self) -> str:
        """Wait for the end; returns the reason."""
        return await self._reason

    def on_signals(self) -> None:
        """End on the usual signals, except those that the parent chose to ignore (nohup)."""
        for number in _STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._signalled, number)

    async def with_parent(self) -> None:
        """End when the parent is gone.

        A pipe as standard input tells at once. The parent's id tells later, but also when other
        children of the parent have inherited the other end of that pipe.
        """
        if _STANDARD_INPUT.is_fifo() or _STANDARD_INPUT.is_socket():
            self._input, _ = await self._loop.connect_read_pipe(
                lambda: _InputEnd(lambda: self._orphaned("standard input was closed"), self._asked),
                sys.stdin.buffer,
            )
        self._poll_parent()

    def with_process(self, process_id: int, birth: str) -> None:
        """End when another process is gone, which is treated as the parent."""
        if birth_of(process_id) != birth:
            self._orphaned(f"process {process_id} is gone")
        else:
            self._timer = self._loop.call_later(
                _PARENT_POLL_S, self.with_process, process_id, birth
            )

    def forget_parent(self) -> None:
        """Stop watching the parent."""
        if self._timer is not None:
            self._timer.cancel()
        if self._input is not None:
            self._input.close()

    def _signalled(self, number: signal.Signals) -> None:
        for each in _STOP_SIGNALS:
            self._loop.remove_signal_handler(each)
        self._ask(f"got {signal.Signals(number).name}")

    def _poll_parent(self) -> None:
        if os.getppid() != self._parent_id:
            self._orphaned("the parent process is gone")
        else:
            self._timer = self._loop.call_later(_PARENT_POLL_S, self._poll_parent)

    def _asked(self, line: bytes) -> None:
        """Answer the owner's line; lines are ignored if the owner has no control."""
        if self._answer is not None:
            task = self._loop.create_task(self._print_answer(self._answer, line.decode()))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _print_answer(
        self, answer: Callable[[str], Coroutine[Any, Any, str]], line: str
    ) -> None:
        print(await answer(line), flush=True)

    def _orphaned(self, reason: str) -> None:
        if not self.is_asked:
            self.is_orphan = True
        self._ask(reason)

    def _ask(self, reason: str) -> None:
        if not self._reason.done():
            self._reason.set_result(reason)


class _InputEnd(asyncio.Protocol):
    """Protocol that reports the lines and the end of standard input."""

    def __init__(self, ended: Callable[[], None], asked: Callable[[bytes], None]) -> None:
        self._ended = ended
        self._asked = asked
        self._begun = b""

    def data_received(self, data: bytes) -> None:
        """Lines that the parent writes."""
        *lines, begun = (self._begun + data).split(b"\n")
        self._begun = begun[:_LINE_SIZE_MAX]
        for line in lines:
            self._asked(line)

    def eof_received(self) -> None:
        """The parent closed the input, or is gone."""
        self._ended()

    def connection_lost(self, exc: Exception | None) -> None:
        """A lost connection counts as the end of the input."""
        self._ended()


def _write_pid(path: Path | None) -> None:
    if path is None:
        return
    # In a directory that others can write to, a link there could name any file of this user: the
    # name is replaced, and what it led to is never opened.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        if path.is_symlink() or (path.exists() and path.lstat().st_nlink > 1):
            raise CommandFailed(f"--pid-file {path}: it is a link; name another file")
        with fresh.open("x", encoding="ascii") as file:
            file.write(f"{os.getpid()}\n")
        fresh.replace(path)
    except OSError as error:
        raise CommandFailed(f"--pid-file {path}: {error.strerror}") from None


def _remove_pid(path: Path | None) -> None:
    if path is None:
        return
    try:
        # Another process may have taken the name meanwhile.
        if path.read_text(encoding="ascii").strip() == str(os.getpid()):
            path.unlink()
    except (OSError, ValueError):
        _log.warning("%s is gone or not ours any more", path)


def _log_to_stderr(level: str, log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        # Not worth the time of every start.
        from broker_core.cli.servers.json_log import JsonLines

        handler.setFormatter(JsonLines())
    else:
        text = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
        handler.setFormatter(logging.Formatter(text, "%Y-%m-%dT%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
