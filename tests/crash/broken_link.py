"""A TCP link that can be cut, stalled, slowed down and reset in the middle of a byte stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_CHUNK = 1 << 16


class BrokenLink:
    """Leads from `address` to a target; healthy at first."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._is_cut = False
        self._delay_s = 0.0
        self._chunk = _CHUNK
        self._reset_after: int | None = None
        self.address = ""
        self.carried = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self.heal()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    def cut(self) -> None:
        """Reset what is connected and refuse what comes: the cable is out, and both sides know."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def stall(self) -> None:
        """Carry nothing, close nothing: a half-open connection."""
        self._flowing.clear()

    def trickle(self, chunk: int, delay_s: float) -> None:
        """Carry this many bytes at a time, with a pause after each."""
        self._chunk, self._delay_s = chunk, delay_s

    def reset_after(self, size: int) -> None:
        """Reset every connection once so many more bytes have been carried."""
        self._reset_after = self.carried + size

    def heal(self) -> None:
        """Carry everything again."""
        self._is_cut, self._reset_after = False, None
        self._chunk, self._delay_s = _CHUNK, 0.0
        self._flowing.set()

    async def _relay(self, near: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(near_out)
        far_out: asyncio.StreamWriter | None = None
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                if self._is_cut:
                    return
                host, _, port = self._target.rpartition(":")
                far, far_out = await asyncio.open_connection(host, int(port))
                self._writers.add(far_out)
                await asyncio.gather(self._carry(near, far_out), self._carry(far, near_out))
        finally:
            for writer in (near_out, far_out):
                if writer is not None:
                    self._writers.discard(writer)
                    writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        while data := await reader.read(self._chunk):
            await self._flowing.wait()
            if self._delay_s:
                await asyncio.wait((never,), timeout=self._delay_s)
            limit = self._reset_after
            if limit is not None and self.carried + len(data) >= limit:
                # Up to the very byte, then nothing.
                writer.write(data[: max(limit - self.carried, 0)])
                with contextlib.suppress(OSError):
                    await writer.drain()
                self.cut()
                self.heal()
                return
            self.carried += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


@contextlib.asynccontextmanager
async def broken_link(target: str) -> AsyncIterator[BrokenLink]:
    """A link to `target` while the block runs."""
    link = BrokenLink(target)
    await link.start()
    try:
        yield link
    finally:
        await link.stop()
