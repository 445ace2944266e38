"""A store in a process of its own, to be killed, starved of disk space or given failing calls.

    python -m tests.crash.store_process DIRECTORY [setting=number ...]

    lines in                              lines out
    put FIRST COUNT   16 producers        open clean|recovered       the store is open
    run FIRST         until killed        sent NUMBER                before each put
    settle            try one put until   ack NUMBER QUEUE OFFSET    PUT_OK: the promise is given
                      it is acknowledged  no NUMBER STATUS           anything else: no promise
    close             and end             done                       a command is finished
                                          refused TYPE TEXT          the store cannot be opened
                                          unclean TEXT               the stop was not a clean one

Top half: the child. Bottom half: the parent's handle, and the comparison of what the child
promised with what is on disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import itertools
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from broker_core.codec.records.column_names import VALUE
from broker_core.config import StoreConfig
from broker_core.errors import RmqError
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message

TOPIC = "orders"
QUEUES = 4
PRODUCERS = 16
SETTLE_PUTS_MAX = 10_000
SETTLE_PAUSE_S = 0.01
# Long enough for a slow machine; a child that takes longer is stuck.
STUCK_AFTER_S = 300.0

SMALL: Mapping[str, int] = {
    "commit_log_file_size": 256 << 10,
    "consume_queue_file_size": 20 * 500,
    "index_hash_slots": 200,
    "index_entries_max": 800,
    "flush_interval_ms": 10,
    "consume_queue_flush_interval_ms": 20,
    "dispatch_checkpoint_interval_ms": 40,
    "watermark_sync_interval_ms": 30,
    "clean_interval_ms": 50,
    "clean_forcibly_enable": 0,
    # A disk that is busy with other things may take longer than the default of 5 s for a sync, and
    # a machine that pauses in the middle of a put is not one that has no memory left.
    "sync_flush_timeout_ms": 120_000,
    "page_cache_busy_timeout_ms": 120_000,
}


def body_of(number: int, size: int) -> bytes:
    """A body that only this number can have."""
    head = b"%012d" % number
    digest = hashlib.sha256(head).digest()
    return (head + digest * (size // len(digest) + 1))[:size]


def make_config(settings: Mapping[str, int]) -> StoreConfig:
    """Flags are numbers on a command line."""
    kinds = {field.name: type(field.default) for field in dataclasses.fields(StoreConfig)}
    return StoreConfig(**{name: kinds[name](value) for name, value in settings.items()})


class _Child:
    """What runs in the process of its own."""

    def __init__(self, store: MessageStore, body_size: int) -> None:
        self._store = store
        self._body_size = body_size

    async def serve(self) -> None:
        """Obey until `close` or the end of the input."""
        await self._store.start()
        while words := (await asyncio.to_thread(sys.stdin.readline)).split():
            if words[0] == "close":
                break
            numbers = itertools.count(int(words[1]))
            if words[0] == "put":
                await self._produce(itertools.islice(numbers, int(words[2])))
            elif words[0] == "run":
                await self._produce(numbers)
            elif words[0] == "settle":
                await self._settle(int(words[1]))
            _say("done")

    async def _produce(self, numbers: Iterable[int]) -> None:
        source = iter(numbers)

        async def producer() -> None:
            for number in source:
                await self._put(number)

        await asyncio.gather(*(producer() for _ in range(PRODUCERS)))

    async def _settle(self, number: int) -> None:
        """The store looks at its disk on a timer, and its threads may need their time."""
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for attempt in range(number, number + SETTLE_PUTS_MAX):
            if await self._put(attempt):
                return
            await asyncio.wait((never,), timeout=SETTLE_PAUSE_S)

    async def _put(self, number: int) -> bool:
        queue_id = number % QUEUES
        body = body_of(number, self._body_size)
        _say(f"sent {number}")
        result = await self._store.put(Message(TOPIC, body, queue_id=queue_id, keys=f"k{number}"))
        if result.ok:
            _say(f"ack {number} {queue_id} {result.queue_offset}")
        else:
            _say(f"no {number} {result.status.name}")
        return result.ok


def _say(text: str) -> None:
    # One write for one line: a kill leaves whole lines or none.
    os.write(1, f"{text}\n".encode())


def main(directory: str, *settings: str) -> int:
    """The child's program."""
    numbers = {name: int(value) for name, _, value in (s.partition("=") for s in settings)}
    body_size = numbers.pop("body_size")
    try:
        store = MessageStore.open(directory, make_config(numbers))
    except RmqError as error:
        _say(f"refused {type(error).__name__} {error}")
        return 3
    _say(f"open {'clean' if store.recovery.clean else 'recovered'}")
    try:
        asyncio.run(_Child(store, body_size).serve())
    finally:
        try:
            store.close()
        except RmqError as error:
            _say(f"unclean {error}")
    return 0


# The parent's side


@dataclasses.dataclass
class Promises:
    """What all children have reported so far."""

    sent: set[int] = dataclasses.field(default_factory=set)
    acked: dict[int, tuple[int, int]] = dataclasses.field(default_factory=dict)
    refusals: list[str] = dataclasses.field(default_factory=list)
    acked_after_refusal: list[int] = dataclasses.field(default_factory=list)

    def note(self, words: Sequence[str]) -> None:
        """One line of a child."""
        if words[0] == "sent":
            self.sent.add(int(words[1]))
        elif words[0] == "ack":
            number, queue_id, offset = map(int, words[1:])
            self.acked[number] = queue_id, offset
            if self.refusals:
                self.acked_after_refusal.append(number)
        elif words[0] == "no":
            self.refusals.append(words[2])

    @property
    def next_number(self) -> int:
        """A number never used."""
        return max(self.sent, default=-1) + 1


class StoreProcess:
    """Handle of one child. Leaving the `with` block ends it, by its own id."""

    def __init__(
        self,
        directory: Path,
        promises: Promises,
        *,
        settings: Mapping[str, int] = SMALL,
        body_size: int = 64,
        wrapper: Sequence[str] = (),
    ) -> None:
        self._promises = promises
        self._rest = b""
        self._ended: tuple[int, str] | None = None
        words = [f"{name}={value}" for name, value in {**settings, "body_size": body_size}.items()]
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-m", __name__, str(directory), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            # A traced child outlives its tracer's kill; its group does not.
            start_new_session=True,
        )
        self._watchdog = threading.Timer(STUCK_AFTER_S, self.kill)
        self._watchdog.daemon = True
        self._watchdog.start()

    def __enter__(self) -> StoreProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self.finish()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    @property
    def process_id(self) -> int:
        """Of the child, or of its tracer."""
        return self._process.pid

    def send(self, text: str) -> None:
        """One command."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()

    def wait_for(self, *first_words: str) -> list[str]:
        """Read until a line begins with one of these; [] when the child ends before."""
        while True:
            line = self._line(None)
            if line is None or line[0] in first_words:
                return line or []

    def command(self, text: str) -> bool:
        """Send and wait until it is done."""
        self.send(text)
        return bool(self.wait_for("done"))

    def run_for(self, seconds: float) -> None:
        """Read lines for a while."""
        deadline = time.monotonic() + seconds
        while self._line(deadline) is not None:
            pass

    def run_until_acked(self, count: int) -> None:
        """Read lines until so many more puts are acknowledged."""
        wanted = len(self._promises.acked) + count
        while len(self._promises.acked) < wanted:
            assert self._line(None) is not None, self.finish()

    def kill(self) -> None:
        """SIGKILL to the child and, under a tracer, to both."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)

    def finish(self) -> tuple[int, str]:
        """Read what is left and reap it: exit status and standard error."""
        if self._ended is not None:
            return self._ended
        while self._line(None) is not None:
            pass
        process = self._process
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stdin is not None
        errors = process.stderr.read().decode("utf-8", "replace")
        status = process.wait()
        self._watchdog.cancel()
        self._watchdog.join()
        for pipe in (process.stdout, process.stderr):
            pipe.close()
        with contextlib.suppress(BrokenPipeError):
            # A command may be left that is never read.
            process.stdin.close()
        self._ended = status, errors
        return self._ended

    def _line(self, deadline: float | None) -> list[str] | None:
        """The next line, noted; None at the end of the output or after the deadline."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            wait_s = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            if not select.select([self._process.stdout], [], [], wait_s)[0]:
                return None
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        words = line.decode().split()
        self._promises.note(words)
        return words


def missing_or_wrong(
    store: MessageStore, promises: Promises, body_size: int = 64
) -> tuple[list[str], int]:
    """What breaks the promises in an open store, and how many messages it holds."""
    problems = []
    present: dict[int, tuple[int, int]] = {}
    for queue_id in range(QUEUES):
        low, high = store.offsets(TOPIC, queue_id)
        if low:
            problems.append(f"queue {queue_id} starts at {low}")
        for offset, body in enumerate(_bodies(store, queue_id, low, high, body_size), low):
            number = int(body[:12])
            if body != body_of(number, body_size) or number not in promises.sent:
                problems.append(f"queue {queue_id} offset {offset}: {body[:40]!r} was never sent")
            if number in present:
                problems.append(f"message {number} is stored twice")
            present[number] = queue_id, offset
    for number, place in promises.acked.items():
        if present.get(number) != place:
            problems.append(f"acknowledged {number} at {place}, found {present.get(number)}")
    return problems, len(present)


def _bodies(
    store: MessageStore, queue_id: int, low: int, high: int, body_size: int
) -> Iterable[bytes]:
    if low == high:
        return
    data = bytes(memoryview(store.read_columns(TOPIC, queue_id, low, high, VALUE)["value"][0]))
    assert len(data) == (high - low) * body_size
    for start in range(0, len(data), body_size):
        yield data[start : start + body_size]


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
