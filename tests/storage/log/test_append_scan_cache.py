"""Appends scanned while they are written."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from broker_core.codec.native import relocate_run
from broker_core.codec.records.record_layout import BLANK_RESERVE
from broker_core.storage.log import append_scan_cache
from broker_core.storage.log.append_group import GROUP_TOPIC
from broker_core.storage.log.append_scan_cache import AppendScanCache
from broker_core.storage.log.group_writer import Stamp
from tests.codec.codec_backends import HOST
from tests.store.small_store import run_of

STAMP = Stamp(9, HOST)


NO_DELAYS = memoryview(b"").cast("B")


@pytest.fixture(autouse=True)
def _scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """With either codec."""
    monkeypatch.setattr(append_scan_cache, "SCANS_PAY", True)


class TestAppendScanCache:
    def steps(self, **options: Any) -> AppendScanCache:
        return AppendScanCache(NO_DELAYS, index_tags=False, **options)

    def data(self, count: int = 700, position: int = 0, **fields: Any) -> memoryview:
        """Records as they lie at a position of the log."""
        records = run_of(*[b"x" * 10] * count, **fields).records
        out = memoryview(bytearray(len(records) + BLANK_RESERVE))
        relocate_run(records, 0, array("q", [0]), *STAMP, out, 0, len(out), position)
        return out[: len(records)]

    def test_a_step_is_given_once_and_only_where_it_fits(self) -> None:
        steps, data = self.steps(), self.data(position=1_000)
        steps.note(data, len(data), 1_000)
        end = 1_000 + len(data)
        assert steps.take(999, end) is None
        assert steps.bound(0, end) == 1_000
        assert steps.bound(0, 500) == 500
        assert steps.bound(1_000, end) == end, "a walk from where it begins has to go on"
        assert steps.take(1_000, end - 1) is None, "replication may cut anywhere"
        step = steps.take(1_000, end)
        assert step is not None
        assert (step.start, step.end, step.scan is not None) == (1_000, end, True)
        assert steps.take(1_000, end) is None

    def test_steps_that_a_walk_has_passed_are_forgotten(self) -> None:
        steps, data = self.steps(), self.data(position=1_000)
        steps.note(data, len(data), 1_000)
        assert steps.take(1_001, 1 << 30) is None
        assert steps.bound(0, 1 << 30) == 1 << 30

    def test_what_dispatch_has_to_look_at_itself_is_not_kept(self) -> None:
        steps = self.steps()
        short = self.data(3)
        assert len(short) < append_scan_cache.SIZE_MIN
        header = self.data(700, topic=GROUP_TOPIC)
        torn = self.data()[:-1]
        for data in (short, header, torn):
            assert steps.scan(data, len(data), 0) is None

    def test_memory_is_bounded_and_comes_back(self) -> None:
        steps, data = self.steps(size_max=1), self.data()
        steps.note(data, len(data), 0)
        assert steps.scan(data, len(data), 0) is None, "full"
        assert steps.take(0, 1 << 30) is not None
        assert steps.scan(data, len(data), 0) is not None
