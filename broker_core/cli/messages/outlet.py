"""Prints messages up to a limit."""

from __future__ import annotations

import asyncio
from typing import BinaryIO

from broker_core.cli.messages.format import PrintableMessage, Render


class MessageOutlet:
    """Writes to `output`; what it has written is flushed when the event loop has time."""

    def __init__(self, output: BinaryIO, render: Render, count_max: int | None = None) -> None:
        self._output = output
        self._render = render
        self._count_max = count_max
        self._count = 0
        self._is_flush_due = False
        self._failure: OSError | None = None
        self._full = asyncio.Event()

    async def full(self) -> None:
        """Wait until the limit is reached or the output is closed."""
        await self._full.wait()

    def print(self, message: PrintableMessage) -> bool:
        """Print one message; returns False, without printing, when the limit was reached before."""
        if self._full.is_set():
            return False
        try:
            self._output.write(self._render(message))
        except OSError as error:
            self._fail(error)
            return False
        self._count += 1
        if self._count == self._count_max:
            self._full.set()
        if not self._is_flush_due:
            self._is_flush_due = True
            asyncio.get_running_loop().call_soon(self._flush_soon)
        return True

    def flush(self) -> None:
        """Flush the output. Raises the error of this or an earlier write."""
        if self._failure is not None:
            raise self._failure
        self._output.flush()

    def _flush_soon(self) -> None:
        self._is_flush_due = False
        try:
            self._output.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        # `flush` raises it at the end; this call has no caller to raise to.
        self._failure = self._failure or error
        self._full.set()
