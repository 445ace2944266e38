"""One HTTP request, and its answer."""

from __future__ import annotations

import asyncio
import contextlib


async def fetch(
    address: str, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
) -> bytes:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 120)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
