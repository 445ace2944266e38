"""Bits that select the columns of `decode_columns`."""

from __future__ import annotations

from typing import Final

VALUE: Final = 1
TOPIC: Final = 2
TAGS: Final = 4
KEYS: Final = 8
UNIQ_KEY: Final = 16
PROPERTIES: Final = 32
QUEUE_ID: Final = 64
QUEUE_OFFSET: Final = 128
STORE_TIMESTAMP: Final = 256
BORN_TIMESTAMP: Final = 512
SYS_FLAG: Final = 1024
FLAG: Final = 2048
RECONSUME_TIMES: Final = 4096
PHYSICAL_OFFSET: Final = 8192
MESSAGE_ID: Final = 16384
MICROS: Final = 1 << 20
"""Not a column: timestamps in microseconds instead of milliseconds."""
