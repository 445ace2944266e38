"""F07: SIGKILL at random moments under load, again and again on one store."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from tests.crash.store_process import SMALL, Promises, StoreProcess, make_config, missing_or_wrong

pytestmark = pytest.mark.crash

CYCLES = 60
LONG_CYCLES = 3_000
ACKED_MIN = 11


def test_killed_sixty_times_nothing_acknowledged_is_lost(
    tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    rng = random.Random(7)
    promises = Promises()
    directory = tmp_path / "store"
    started = time.monotonic()
    cycles = LONG_CYCLES if long_run else CYCLES
    cut = 0
    for cycle in range(cycles):
        with StoreProcess(directory, promises) as child:
            assert child.wait_for("open", "refused")[:1] == ["open"], child.finish()
            child.send(f"run {promises.next_number}")
            # Under load, however slow the machine is; then at any moment.
            child.run_until_acked(ACKED_MIN)
            child.run_for(rng.uniform(0.0, 0.1))
            child.kill()
            child.finish()
        looked_at = directory
        if cycle % 2:
            # Look at a copy, so that the next child finds what the kill left, not a clean stop.
            looked_at = tmp_path / "copy"
            shutil.copytree(directory, looked_at)
        with MessageStore.open(looked_at, make_config(SMALL)) as store:
            problems, present = missing_or_wrong(store, promises)
            cut += bool(store.recovery.cut_reason)
            assert not store.recovery.epoch_changed, "a kill alone loses nothing"
        assert not problems, f"cycle {cycle}: {problems[:5]}"
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    assert not promises.refusals, set(promises.refusals)
    assert len(promises.acked) >= ACKED_MIN * cycles
    summary_lines.append(
        f"F07 kills            {cycles} cycles on one store: {len(promises.acked)} acknowledged, "
        f"{present} present, {len(promises.sent)} sent, 0 lost, {cut} torn tails cut, "
        f"{time.monotonic() - started:.0f} s"
    )
