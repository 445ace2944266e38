"""What is written to a socket at once: small pieces joined, large ones as they are."""

from __future__ import annotations

from collections.abc import Iterator

# Pieces of output from this size on are written on their own.
LARGE_PIECE = 128 << 10


def joined_but_large(pieces: list[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes with small pieces joined; copying large ones costs more than a system call."""
    small: list[bytes | memoryview] = []
    for piece in pieces:
        if len(piece) < LARGE_PIECE:
            small.append(piece)
        else:
            if small:
                yield b"".join(small)
                small = []
            yield piece
    if small:
        yield b"".join(small)
