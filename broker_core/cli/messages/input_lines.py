"""Lines of standard input as they arrive, without blocking the event loop.

Reads on a daemon thread: a read that waits for the terminal does not keep an ending process alive.
Reads at most a few chunks ahead.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

from broker_core.cli.exit_codes import CommandFailed

CHUNK_SIZE: Final = 256 << 10
LINE_SIZE_MAX: Final = 64 << 20
_CHUNKS_AHEAD: Final = 4


async def line_groups(
    read: Callable[[int], bytes], delimiter: bytes = b"\n"
) -> AsyncIterator[list[bytes]]:
    """Lines that arrived together, without their ends (`\\n` or `\\r\\n`); never an empty list.

    `read(size)` blocks until there is something and gives no bytes at the end.
    """
    rest = bytearray()
    trimmed = _without_return if delimiter == b"\n" else bytes
    async for chunk in _chunks(read):
        # A delimiter may begin in the chunk before.
        searched_from = max(0, len(rest) - len(delimiter) + 1)
        rest += chunk
        if rest.find(delimiter, searched_from) < 0:
            if len(rest) > LINE_SIZE_MAX:
                raise CommandFailed(f"a line has more than {LINE_SIZE_MAX} bytes")
            continue
        lines = bytes(rest).split(delimiter)
        rest = bytearray(lines.pop())
        yield [trimmed(line) for line in lines]
    if rest:
        yield [trimmed(bytes(rest))]


def _without_return(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line


async def _chunks(read: Callable[[int], bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    permits: queue.SimpleQueue[bool] = queue.SimpleQueue()
    for _ in range(_CHUNKS_AHEAD):
        permits.put(True)

    def pump() -> None:
        while permits.get():
            try:
                chunk: bytes | OSError = read(CHUNK_SIZE)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(arrived.put_nowait, chunk)
            except RuntimeError:
                # The loop has been closed.
                return
            if not chunk or isinstance(chunk, OSError):
                return

    threading.Thread(target=pump, name="rmq-input", daemon=True).start()
    try:
        while chunk := await arrived.get():
            if isinstance(chunk, OSError):
                raise chunk
            yield chunk
            permits.put(True)
    finally:
        permits.put(False)
