"""The age of log files, safe against steps of the wall clock.

Normally the modification time gives the age of a file, as in RocketMQ; an operator may set it to
expire files. A clock that is set ten years ahead for a minute must not expire all files, and one
that is set back must not make new files look ten years old. After a detected step, files age by the
monotonic clock from their last known age. A file that filled up since the last check is at most as
old as that check. A step that is undone before the next check goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_core.runtime.clock import Clock, SteadyTime
from broker_core.storage.log.segment_file import Segment

# Files live for hours: small corrections of the clock do not matter.
STEP_MS: Final = 60_000


class FileAges:
    """Owner thread only. Called every few seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._time = SteadyTime(clock)
        self._has_stepped = False
        self._checked_at_ms = 0
        # First position of a full file -> its age at the last check
        self._known: dict[int, int] = {}

    def of(self, segments: Sequence[Segment]) -> list[int]:
        """Milliseconds since the last write to each file; 0 for the last, which takes appends."""
        now_ms, elapsed_ms = self._time.now_ms, self._time.elapsed_ms
        self._has_stepped |= abs(self._clock.wall_ms() - now_ms) > STEP_MS
        passed_ms = elapsed_ms - self._checked_at_ms
        ages = {}
        for segment in segments[:-1]:
            by_file = now_ms - segment.file.modified_ms()
            known = self._known.get(segment.base)
            if by_file >= 0 and not self._has_stepped:
                ages[segment.base] = by_file
            elif known is not None:
                ages[segment.base] = known + passed_ms
            else:
                # Filled after the last check, or no earlier age is known.
                ages[segment.base] = min(max(by_file, 0), passed_ms)
        self._known, self._checked_at_ms = ages, elapsed_ms
        return [*ages.values(), 0] if segments else []
