"""Recall handle: the text with which a producer cancels a timer message. RocketMQ's format.

URL-safe Base64 of `v1 <topic> <broker name> <due time in ms> <unique key>`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

from broker_core.errors import InvalidArgument

_VERSION: Final = "v1"
_SIZE_MAX: Final = 4_096
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class RecallHandle(NamedTuple):
    """Identifies one timer message."""

    topic: str
    broker_name: str
    due_ms: int
    unique_key: str

    def encode(self) -> str:
        """The text of the handle."""
        parts = _VERSION, self.topic, self.broker_name, str(self.due_ms), self.unique_key
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def decode_handle(text: str) -> RecallHandle:
    """Parse a handle; raises `InvalidArgument` for anything else."""
    problem = InvalidArgument("recall handle is invalid")
    if not text or len(text) > _SIZE_MAX or not text.isascii():
        raise problem
    try:
        padded = text + "=" * (-len(text) % 4)
        parts = base64.b64decode(padded.encode(), b"-_", validate=True).decode().split(" ")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise problem from error
    if len(parts) != 5 or parts[0] != _VERSION or _NUMBER.fullmatch(parts[3]) is None:
        raise problem
    return RecallHandle(parts[1], parts[2], int(parts[3]), parts[4])
