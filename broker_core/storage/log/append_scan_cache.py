"""Scans long appends into queue units while their bytes are still in the processor's cache.

    append ── scratch ── write ──► file
                 └─ scan ─► kept ─► dispatch, once it is visible

Dispatch would otherwise read the same records again through the map: pages that are not mapped yet,
and memory that has left the cache by then. Dispatch scans what is not in this cache itself; the
result is the same.
"""

from __future__ import annotations

from typing import Final

from broker_core.codec.native import codec_backend, scan_records
from broker_core.codec.records.record_layout import SKIP_CHECKSUMS
from broker_core.codec.records.record_scan import STOP_LIMIT
from broker_core.storage.log.append_group import GROUP_QUEUE, GROUP_TOPIC
from broker_core.storage.log.log_walk import KEPT_SIZE_MAX, KeptSteps, Step

# The Python twin gains nothing from the cache, and the scan would delay producers.
SCANS_PAY: Final = codec_backend() == "native"
# Dispatch handles several shorter appends in one walk, which is cheaper than a step for each.
SIZE_MIN: Final = 64 << 10


class AppendScanCache:
    """Owner thread only, but for `scan`."""

    def __init__(
        self, delays: memoryview, *, index_tags: bool, size_max: int = KEPT_SIZE_MAX
    ) -> None:
        self._delays = delays
        self._index_tags = index_tags
        self._kept = KeptSteps(size_max)

    def scan(self, data: memoryview, size: int, position: int) -> Step | None:
        """Scan whole records that start at log position `position`; on any thread.

        None for appends that dispatch must scan itself: short ones, headers of groups.
        """
        if size < SIZE_MIN or self._kept.is_full or not SCANS_PAY:
            return None
        scan = scan_records(
            data, 0, size, position, SKIP_CHECKSUMS, self._delays, GROUP_TOPIC, self._index_tags
        )
        if scan.stop != STOP_LIMIT or scan.end != size or GROUP_QUEUE in scan.queues:
            return None
        return Step(position, position + size, scan, False, "")

    def note(self, data: memoryview, size: int, position: int) -> None:
        """Scan and cache records that were written after all cached ones."""
        self.keep(self.scan(data, size, position))

    def keep(self, step: Step | None) -> None:
        """Append a step."""
        if step is not None:
            self._kept.add(step)

    def forget_from(self, position: int) -> None:
        """The log was cut at this position."""
        self._kept.forget_from(position)

    def take(self, position: int, limit: int) -> Step | None:
        """Remove and return the cached step from `position` to at most `limit`, if there is one."""
        return self._kept.take(position, limit)

    def bound(self, position: int, limit: int) -> int:
        """The end of a walk from `position` towards `limit`, before the next cached step."""
        return self._kept.bound(position, limit)
