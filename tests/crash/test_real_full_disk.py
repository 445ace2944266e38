"""F06: the disk is full while files are mapped. A process that stores into a hole then dies of
SIGBUS; ours must stay alive, refuse puts, and go on when there is room again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from tests.crash.small_disks import MIB, Ballast, small_tmpfs, why_not
from tests.crash.store_process import (
    SMALL,
    TOPIC,
    Promises,
    StoreProcess,
    make_config,
    missing_or_wrong,
)

pytestmark = [pytest.mark.crash, pytest.mark.root]

ALLOWED = {"CREATE_MAPPED_FILE_FAILED", "SERVICE_NOT_AVAILABLE"}
# Without looking at the fill level of the disk: only a real ENOSPC stops the store.
BLIND = {**SMALL, "clean_interval_ms": 3_600_000}


@pytest.fixture
def mountable(tmp_path: Path) -> Path:
    reason = why_not(tmp_path)
    if reason:
        pytest.skip(f"F06 needs a small tmpfs: {reason}")
    return tmp_path


def check(directory: Path, settings: Mapping[str, int], promises: Promises) -> int:
    with MessageStore.open(directory, make_config(settings)) as store:
        problems, present = missing_or_wrong(store, promises)
        assert not problems, problems[:5]
        for number in list(promises.acked)[:: max(len(promises.acked) // 50, 1)]:
            found = store.query(TOPIC, f"k{number}")
            assert [int(message.body[:12]) for message in found] == [number], f"key k{number}"
    return present


def open_descriptors(process_id: int) -> int:
    return len(os.listdir(f"/proc/{process_id}/fd"))  # noqa: PTH208 - only counted


def test_the_log_fills_the_disk(mountable: Path, summary_lines: list[str]) -> None:
    started = time.monotonic()
    promises = Promises()
    with small_tmpfs(mountable / "disk", 4 * MIB) as disk:
        ballast = Ballast(disk / "ballast")
        ballast.fill(leaving=2 * MIB)
        with StoreProcess(disk / "store", promises, settings=SMALL, body_size=2000) as child:
            assert child.wait_for("open") == ["open", "recovered"]
            assert child.command("put 0 3000"), child.finish()
            assert child.alive
            refused = len(promises.refusals)
            assert refused, "2 MiB took 6 MB of messages"
            assert set(promises.refusals) <= ALLOWED, set(promises.refusals)
            full_at = len(promises.acked)
            ballast.free()
            assert child.command("settle 3000"), child.finish()
            assert child.command("put 40000 50"), child.finish()
            assert len(promises.refusals) < refused + 20_000
            assert len(promises.acked) >= full_at + 51, "puts do not work again"
            child.send("close")
            status, errors = child.finish()
        assert status == 0, errors[-2000:]
        with MessageStore.open(disk / "store", make_config(SMALL)) as store:
            problems, present = missing_or_wrong(store, promises, 2000)
        assert not problems, problems[:5]
    summary_lines.append(
        f"F06 full disk, log   {full_at} acknowledged, {refused} refused, alive; "
        f"{len(promises.acked) - full_at} more after space was freed, {present} present, 0 lost, "
        f"{time.monotonic() - started:.1f} s"
    )


@pytest.mark.parametrize("first_puts", [0, 700], ids=["first files", "next files"])
def test_queues_and_index_find_no_room(
    mountable: Path, summary_lines: list[str], first_puts: int
) -> None:
    """The log has its blocks already; the files that are derived from it do not."""
    started = time.monotonic()
    promises = Promises()
    with small_tmpfs(mountable / "disk", 4 * MIB) as disk:
        ballast = Ballast(disk / "ballast")
        with StoreProcess(disk / "store", promises, settings=BLIND) as child:
            assert child.wait_for("open") == ["open", "recovered"]
            assert child.command(f"put 0 {16 + first_puts}"), child.finish()
            ballast.fill()
            descriptors = open_descriptors(child.process_id)
            before = len(promises.acked)
            assert child.command("put 5000 2500"), child.finish()
            assert child.alive
            refused = len(promises.refusals)
            assert refused, "puts went on although nothing can be written"
            leaked = open_descriptors(child.process_id) - descriptors
            assert leaked < 20, f"{leaked} more open files while the disk is full"
            assert set(promises.refusals) <= ALLOWED, set(promises.refusals)
            ballast.free()
            assert child.command("settle 10000"), child.finish()
            assert child.command("put 50000 200"), child.finish()
            after = len(promises.acked)
            child.send("close")
            status, errors = child.finish()
        assert status == 0, errors[-2000:]
        assert after >= before + 201
        present = check(disk / "store", BLIND, promises)
    summary_lines.append(
        f"F06 full disk, queues and index: {refused} refused, alive; {after} acknowledged, "
        f"{present} present, 0 lost, {time.monotonic() - started:.1f} s"
    )
