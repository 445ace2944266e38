"""Reader that the user provides, for example a client in another language."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping
from typing import Final

from broker_core import errors

_TIMEOUT_S: Final = 600


def read_by_command(command: str, options: Mapping[str, str], topic: str) -> list[str]:
    """Run `command NAME_SERVER TOPIC`; it prints the body of every message, one per line.

    Raises `UnexpectedAnswer` if it fails.
    """
    arguments = [*shlex.split(command), options["rmq.namesrv.addr"], topic]
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise errors.UnexpectedAnswer(f"--reader {command!r:.200} failed: {error}") from error
    if done.returncode != 0:
        raise errors.UnexpectedAnswer(
            f"--reader {command!r:.200} ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return done.stdout.splitlines()
