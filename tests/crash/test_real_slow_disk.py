"""F17 with real processes: a disk that is slow, or hangs for a while, delays those who wait for it.

Requests that need no disk are answered meanwhile; those that wait too long get a timeout status;
nothing that was promised is lost, and when the disk is well again, so is everything else. The
delays are put into `fdatasync` by strace, which is attached to a running broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.embedded.cluster_node import ClusterNode
from broker_core.errors import RmqError
from tests.crash.replicated_run import ReplicatedRun, replicated_run

pytestmark = [pytest.mark.crash, pytest.mark.root]

RunAsync = Callable[..., Any]

SLOW_S = 0.5
HANGS_S = 4.0
# This many answers during a sync show that they do not wait for it, and this many syncs that it is
# not chance.
ANSWERS = 5
SYNCS = 6
LIMIT_S = 180.0
# The error for "stored, but not as safe as promised by now".
TOLD = "NotAcknowledged"
PROPERTIES = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "1500"}


def can_attach() -> bool:
    """strace is there and may trace a process that it has not started; often only root may."""
    if shutil.which("strace") is None:
        return False
    with subprocess.Popen(["sleep", "0.5"]) as other:
        probe = subprocess.run(
            ["strace", "-f", "-p", str(other.pid), "-o", "/dev/null", "-e", "trace=none"],
            check=False,
            capture_output=True,
            timeout=300,
        )
    return probe.returncode == 0


@pytest.fixture(scope="module", autouse=True)
def strace() -> None:
    if not can_attach():
        pytest.skip("F17 needs strace and the right to trace another process: not run")


@contextlib.asynccontextmanager
async def slow_syncs(
    run: ReplicatedRun, node: ClusterNode, seconds: float, trace: Path, which: str = ""
) -> AsyncIterator[None]:
    """Every sync of a member's log takes so much longer, or only that one of each thread."""
    inject = f"inject=fdatasync:delay_exit={int(seconds * 1e6)}{which}"
    command = ["strace", "-f", "-ttt", "-p", str(node.process_id), "-o", str(trace)]
    tracer = await asyncio.create_subprocess_exec(
        *command, "-e", "trace=fdatasync", "-e", inject, stderr=asyncio.subprocess.DEVNULL
    )
    try:

        async def is_traced() -> bool:
            return await asyncio.to_thread(_has_sync, trace)

        await run.until(is_traced, "a sync that strace has seen")
        yield
    finally:
        tracer.terminate()
        await tracer.wait()


def _has_sync(trace: Path) -> bool:
    return trace.exists() and "fdatasync" in trace.read_text()


def sync_starts(trace: Path) -> list[float]:
    """When the syncs that strace has seen began, by the wall clock."""
    lines = trace.read_text().splitlines()
    return [float(line.split()[1]) for line in lines if "fdatasync(" in line]


class Answers:
    """When a member was asked for something that needs no disk, and when it had answered."""

    def __init__(self, run: ReplicatedRun, node: ClusterNode) -> None:
        self._run = run
        self._node = node
        self._seen: list[tuple[float, float]] = []

    @contextlib.asynccontextmanager
    async def asked_for(self) -> AsyncIterator[None]:
        """All the time."""
        asking = asyncio.ensure_future(self._ask())
        try:
            yield
        finally:
            asking.cancel()
            await asyncio.wait((asking,))

    async def _ask(self) -> None:
        while True:
            asked = time.time()
            # A request that a machine which stood still has timed out is no answer.
            with contextlib.suppress(RmqError):
                await self._run.log_range(self._node)
                self._seen.append((asked, time.time()))
            await self._run.pause(0.01)

    async def until_answered(self, trace: Path, seconds: float, syncs: int) -> int:
        """Wait until so many syncs each have had `ANSWERS` during them; the number of answers.

        A member that waits for its disk gives none of them before the sync is over, however often
        it is asked, whereas a machine that stands still only makes this take longer.
        """

        async def is_seen() -> bool:
            return len(self._served(trace, seconds)) >= syncs

        await self._run.until(is_seen, f"answers during {syncs} syncs", LIMIT_S)
        return sum(self._served(trace, seconds))

    def _served(self, trace: Path, seconds: float) -> list[int]:
        counts = [self._during(start, start + seconds) for start in sync_starts(trace)]
        return [count for count in counts if count >= ANSWERS]

    def _during(self, start: float, end: float) -> int:
        return sum(start <= asked and answered <= end for asked, answered in self._seen)


@pytest.mark.parametrize("member", ["master", "slave"])
def test_a_slow_disk_does_not_delay_others(
    run_async: RunAsync, tmp_path: Path, summary_lines: list[str], member: str
) -> None:
    async def scenario() -> str:
        # Nothing but the broker's own limit ends a wait for the disk.
        async with replicated_run(tmp_path / "cluster", timeout_ms=60_000, **PROPERTIES) as run:
            node: ClusterNode = getattr(run, member)
            answers = Answers(run, node)
            async with answers.asked_for():
                async with slow_syncs(run, node, SLOW_S, tmp_path / "slow"):
                    slow = await answers.until_answered(tmp_path / "slow", SLOW_S, SYNCS)
                    # It is slow, and not too slow to wait for.
                    await run.until_acked(8)
                before = run.outcomes[TOLD]
                async with slow_syncs(run, node, HANGS_S, tmp_path / "hangs", ":when=1"):
                    hung = await answers.until_answered(tmp_path / "hangs", HANGS_S, 1)

                    async def is_refused() -> bool:
                        return run.outcomes[TOLD] > before

                    await run.until(is_refused, "a sender gets a timeout", LIMIT_S)
            told = run.outcomes[TOLD] - before
            await run.until_acked(20)
            await run.stop_load()
            await run.until_same()
            size = await run.check_same_bytes()
            count = await run.check_promises(run.slave)
            await run.check_promises(run.master)
            return (
                f"{count} acknowledged, 0 lost, {size >> 10} KiB alike; {slow} answers during "
                f"{SYNCS} syncs of {SLOW_S} s, {hung} during one of {HANGS_S:.0f} s, {told} were "
                "told so"
            )

    found = run_async(scenario(), limit_s=4 * LIMIT_S)
    summary_lines.append(f"F17 slow disk of a {member}: {found}")
