"""Exit codes, and the error that ends a command with one."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
# Wrong options or configuration: a retry cannot help.
MISUSED: Final = 2
INTERRUPTED: Final = 130
# 128 + SIGPIPE, the usual exit code when the reader of the output has closed.
OUTPUT_CLOSED: Final = 141


class CommandFailed(Exception):
    """Ends a command with one line on stderr."""

    def __init__(self, text: str, exit_code: int = FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code
