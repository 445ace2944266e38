"""Write buffers for the transient-pool mode: taken by a segment, returned when it is full.

Appends of a buffered segment live in process memory until the commit service copies them to the
file, so a kill of the process loses what was not committed. Readers never see those bytes.
"""

from __future__ import annotations


class WriteBuffer:
    """One buffer of a whole segment."""

    __slots__ = ("_pool", "view")

    def __init__(self, pool: WriteBufferPool, size: int) -> None:
        self._pool = pool
        # The kernel allocates pages on first touch, so an unused buffer takes no memory.
        self.view = memoryview(bytearray(size))

    def give_back(self) -> None:
        """Return to the pool. The content is overwritten by the next user before it is read."""
        self._pool.put_back(self)


class WriteBufferPool:
    """A fixed number of buffers, created when first needed."""

    def __init__(self, count: int, size: int) -> None:
        self._size = size
        self._left = count
        self._free: list[WriteBuffer] = []

    @property
    def available(self) -> int:
        """How many can be borrowed now."""
        return self._left + len(self._free)

    def borrow(self) -> WriteBuffer | None:
        """A buffer, or None when all are in use."""
        if self._free:
            return self._free.pop()
        if self._left == 0:
            return None
        self._left -= 1
        return WriteBuffer(self, self._size)

    def put_back(self, buffer: WriteBuffer) -> None:
        """Return a buffer; called by `WriteBuffer.give_back`."""
        self._free.append(buffer)
