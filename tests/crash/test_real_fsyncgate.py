"""F05: a real write-back error. An ext4 on a loop device lies in a tmpfs that runs full, so that
the disk "fails" under files that have all their blocks.

The kernel reports the error once and then shows the lost pages as if they were on the disk. A store
that syncs again after the error acknowledges data that is gone; ours must not acknowledge anything
after it, and after a restart hold what it acknowledged.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from tests.crash.small_disks import (
    MIB,
    loop_mount,
    make_image,
    set_tmpfs_size,
    small_tmpfs,
    why_not,
)
from tests.crash.store_process import (
    PRODUCERS,
    SMALL,
    Promises,
    StoreProcess,
    make_config,
    missing_or_wrong,
)

pytestmark = [pytest.mark.crash, pytest.mark.root]

BODY_SIZE = 32 << 10
MEDIUM_SIZE = 24 * MIB
SETTINGS = {**SMALL, "commit_log_file_size": 4 * MIB, "clean_interval_ms": 3_600_000}
# The first file that is synced gets the error of the medium. Here it has to be the log.
LOG_FIRST = {
    **SETTINGS,
    "consume_queue_flush_interval_ms": 3_600_000,
    "dispatch_checkpoint_interval_ms": 3_600_000,
    "index_entries_max": 8_000,
}
QUEUES_OFTEN = {**SETTINGS, "consume_queue_flush_interval_ms": 1}


def look(store_path: Path, promises: Promises, settings: Mapping[str, int]) -> int:
    """Open, compare, close; returns how many messages there are."""
    with MessageStore.open(store_path, make_config(settings)) as store:
        problems, present = missing_or_wrong(store, promises, BODY_SIZE)
    assert not problems, problems[:5]
    return present


def run_until_the_medium_fails(
    tmp_path: Path, promises: Promises, settings: Mapping[str, int], *, journal: bool
) -> tuple[int, int]:
    """How many were acknowledged by the first 1600 puts, how many are there after a restart."""
    reason = why_not(tmp_path, loop=True)
    if reason:
        pytest.skip(f"F05 needs ext4 on a loop device over a tmpfs: {reason}")
    with small_tmpfs(tmp_path / "medium", MEDIUM_SIZE) as medium:
        image = medium / "image"
        make_image(image, 96 * MIB, journal=journal)
        with loop_mount(image, tmp_path / "disk") as disk:
            store_path = disk / "store"
            with StoreProcess(
                store_path, promises, settings=settings, body_size=BODY_SIZE
            ) as child:
                assert child.wait_for("open", "refused")[:1] == ["open"], child.finish()
                child.command("put 0 1600")
                acked = len(promises.acked)
                # The pages look written now, and a sync would even say so.
                child.command("put 2000 64")
                child.kill()
                child.finish()
            set_tmpfs_size(medium, 160 * MIB)
            seen_before = 0
            if not journal:
                # A new process on the same mount: the page cache still shows what was lost.
                seen_before = look(store_path, promises, settings)
        with loop_mount(image, tmp_path / "disk"):
            present = look(store_path, promises, settings)
        assert present >= seen_before, "a message that a reader could see is gone"
    return acked, present


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
def test_a_failing_medium_never_costs_an_acknowledged_message(
    tmp_path: Path, summary_lines: list[str], journal: bool
) -> None:
    started = time.monotonic()
    promises = Promises()
    acked, present = run_until_the_medium_fails(tmp_path, promises, LOG_FIRST, journal=journal)
    assert "UNKNOWN_ERROR" in promises.refusals, "the medium never failed"
    assert not promises.acked_after_refusal, "acknowledged after the error"
    assert len(promises.acked) == acked
    assert acked > 100
    summary_lines.append(
        f"F05 real fsyncgate   {'with' if journal else 'no'} journal: {acked} acknowledged, "
        f"0 after the error, {len(promises.refusals)} refused, after the restart {present} "
        f"present, 0 lost, {time.monotonic() - started:.1f} s"
    )


@pytest.mark.parametrize("journal", [True, False], ids=["journal", "no journal"])
def test_queue_files_may_find_the_failure_first(tmp_path: Path, journal: bool) -> None:
    """Then the store takes no more, and a sync of the log that was under way is still good."""
    promises = Promises()
    acked, _ = run_until_the_medium_fails(tmp_path, promises, QUEUES_OFTEN, journal=journal)
    assert promises.refusals, "the medium never failed"
    # Only what waited for that sync: each producer has one message under way.
    assert len(promises.acked_after_refusal) < PRODUCERS
    assert len(promises.acked) == acked > 100
