"""A TCP relay that delays every byte by the same time, in both directions: a network in between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


async def _carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float
) -> None:
    """Whatever comes is written when its delay is over, in order."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def arrive() -> None:
        never: asyncio.Future[None] = loop.create_future()
        while True:
            due, data = await on_the_way.get()
            wait_s = due - loop.time()
            if wait_s > 0:
                await asyncio.wait((never,), timeout=wait_s)
            if not data:
                writer.close()
                return
            writer.write(data)

    arriving = asyncio.ensure_future(arrive())
    try:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                on_the_way.put_nowait((loop.time() + delay_s, data))
        on_the_way.put_nowait((loop.time() + delay_s, b""))
        await arriving
    finally:
        arriving.cancel()


@contextlib.asynccontextmanager
async def slow_link(address: str, delay_ms: float) -> AsyncIterator[str]:
    """An address that leads to `address`, `delay_ms` away."""
    host, _, port = address.rpartition(":")
    tasks: set[asyncio.Task[None]] = set()

    async def relay(near_reader: asyncio.StreamReader, near_writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            # Cancelled at the end, which asyncio's streams would report as a failure.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(
                    _carry(near_reader, far_writer, delay_ms / 1000),
                    _carry(far_reader, near_writer, delay_ms / 1000),
                )
        finally:
            far_writer.close()
            near_writer.close()

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()
