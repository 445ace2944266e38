"""Asks before something is deleted."""

from __future__ import annotations

import sys
from typing import Final

from broker_core.cli.exit_codes import FAILED, MISUSED, CommandFailed

_YES: Final = frozenset({"y", "yes"})


def confirm(question: str) -> None:
    """Ask on the terminal; raises `CommandFailed` unless the answer is yes.

    Without a terminal there is no one to ask, so `--yes` is required.
    """
    if not sys.stdin.isatty():
        raise CommandFailed(f"{question}? Give --yes, since no terminal can be asked", MISUSED)
    sys.stderr.write(f"{question}? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in _YES:
        raise CommandFailed("nothing was deleted", FAILED)
