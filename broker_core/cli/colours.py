"""Colours for people at a terminal. Output into files and pipes never has any.

`NO_COLOR` (any value) switches them off, `FORCE_COLOR` on.
"""

from __future__ import annotations

import os
from typing import Final, TextIO

_STYLES: Final = {
    "bold": "1",
    "dim": "2",
    "red": "1;31",
    "green": "32",
    "yellow": "33",
}


def wants_colour(stream: TextIO) -> bool:
    """Whether text written to `stream` may have colours."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def paint(text: str, style: str, stream: TextIO) -> str:
    """`text` in a style if `stream` shows it: bold, dim, red, green or yellow."""
    return styled(text, style) if wants_colour(stream) else text


def styled(text: str, style: str) -> str:
    """`text` in a style, whatever the output is."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
