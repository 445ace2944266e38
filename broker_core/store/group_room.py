"""How much of the log a group takes at most, wherever the log ends when it is appended.

Whoever promises to append a group later must know now that it will not be too large then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_core.storage.commit_log import BLANK_SIZE, RecordRun
from broker_core.store.message_store import MessageStore

# More than the header record has beside the note, or any record beside its body.
_BESIDE_NOTE: Final = 1 << 10
_BESIDE_BODY: Final = 64 << 10


class GroupRoom(NamedTuple):
    """Bytes of the log."""

    size_most: int
    """What the group takes at most."""
    size_max: int
    """What a group may take."""


def group_room(store: MessageStore, runs: Sequence[RecordRun], note: bytes) -> GroupRoom:
    """For a group of these runs with this note."""
    parts = store._open_parts()
    segment_size = parts.log.segments.size
    size = _BESIDE_NOTE + len(note) + sum(run.size for run in runs)
    largest = min(size, segment_size, parts.config.message_size_max + _BESIDE_BODY)
    # After the first one, any two files in a row hold more than one file's worth of records: the
    # first record of the second did not fit into the first. What stays blank is shorter than that.
    file_ends = 2 * math.ceil(size / (segment_size - BLANK_SIZE)) - 1
    return GroupRoom(size + file_ends * (largest + BLANK_SIZE), parts.config.group_size_max)
