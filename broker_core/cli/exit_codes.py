"""Why a command ends, as the shell sees it, and the error that carries such an end."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
# Wrong options or a wrong configuration: trying again cannot help.
MISUSED: Final = 2
INTERRUPTED: Final = 130
# 128 + SIGPIPE, as other tools end when nobody reads their output any more.
OUTPUT_CLOSED: Final = 141


class CommandFailed(Exception):
    """Ends a command with one line on stderr."""

    def __init__(self, text: str, exit_code: int = FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
