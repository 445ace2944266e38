"""A group that was taken back leaves nothing, wherever the power is cut meanwhile and afterwards.

A staged file changes while its group is written over several log files. The group is taken back and
shorter ones follow. After every cut all acknowledged messages are stored, and no row of the group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.errors import StagingRefused
from broker_core.protocol_codes import FlushDiskType
from broker_core.storage.log.group_writer import GroupWriter
from broker_core.storage.staging import staging_area as staging
from tests.broker.sink_store import SinkStore, identity
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk

pytestmark = pytest.mark.crash

STATES_PER_POINT = 6


def rows(mark: str, count: int) -> list[bytes]:
    return [b"%s-%d %s" % (mark.encode(), number, b"." * 200) for number in range(count)]


class _Run:
    """What is acknowledged so far, in order."""

    def __init__(self, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
        self.disk = disk
        self.mode = mode
        self.acknowledged: list[bytes] = []
        self.asked: list[bytes] = []
        self._patch = monkeypatch

    def _write(self, sinks: SinkStore, batch: int, found: list[bytes]) -> None:
        self.asked = [*self.acknowledged, *found]
        sinks.write(identity(batch), found)
        self.acknowledged = self.asked

    def go(self) -> None:
        sinks = SinkStore(self.disk, inline_size_max=0, **self.mode)
        self._write(sinks, 0, rows("first", 10))
        part = sinks.stage(identity(1), rows("bad", 60))
        real = GroupWriter.write

        def changed_before(writer: GroupWriter, runs: Any, stamp: Any) -> None:
            file = sinks.disk.open(f"staging/{part.staging_id}")
            file.write(part.size - 300, b"?")
            file.close()
            real(writer, runs, stamp)

        with self._patch.context() as patch:
            patch.setattr(GroupWriter, "write", changed_before)
            with pytest.raises(StagingRefused):
                sinks.publish(identity(1), part)
        assert not sinks.store.fenced
        self._write(sinks, 1, rows("second", 7))
        self._write(sinks, 2, rows("third", 25))
        sinks.stop()


@pytest.fixture(autouse=True)
def _lazily_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As large batches are; in blocks of which the last one is damaged."""
    monkeypatch.setattr(staging, "READ_SIZE_MAX", 0)
    yield


@pytest.mark.parametrize(
    "mode",
    [{}, {"flush_disk_type": FlushDiskType.ASYNC_FLUSH},
     {"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "transient_pool_enable": True,
      "transient_pool_size": 2}],
    ids=["sync", "async", "buffers"],
)  # fmt: skip
def test_nothing_of_it_comes_back(mode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _Run(SimulatedDisk(clock=ManualClock()), monkeypatch, mode)
    whole.go()
    tried = 0
    for number in whole.disk.crash_points():
        disk = SimulatedDisk(clock=ManualClock(), crash_at=number)
        run = _Run(disk, monkeypatch, mode)
        try:
            run.go()
        except SimulatedCrash:
            pass
        else:
            continue
        for state in disk.crash_states(STATES_PER_POINT):
            left = disk.reboot(state)
            found = SinkStore(left, inline_size_max=0, **mode).bodies()
            assert found in (run.acknowledged, run.asked)
            tried += 1
    assert tried > 200
