"""F17 with real processes: a disk that is slow, or hangs for a while, delays those who wait for it.

Whoever asks for something that needs no disk is answered meanwhile; who waits too long is told so;
nothing that was promised is lost, and when the disk is well again, so is everything else. The
delays are put into `fdatasync` by strace, which is attached to a running broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.embedded.cluster_node import ClusterNode
from tests.crash.replicated_run import ReplicatedRun, replicated_run

pytestmark = [pytest.mark.crash, pytest.mark.root]

RunAsync = Callable[..., Any]

SLOW_S = 0.5
HANGS_S = 4.0
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
    command = ["strace", "-f", "-p", str(node.process_id), "-o", str(trace)]
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


async def longest_answer(run: ReplicatedRun, node: ClusterNode, seconds: float) -> float:
    """How long a member took at most to answer what needs no disk, asked all the time."""
    loop = asyncio.get_running_loop()
    until, longest = loop.time() + seconds, 0.0
    while loop.time() < until:
        started = loop.time()
        await run.log_range(node)
        longest = max(longest, loop.time() - started)
        await run.pause(0.01)
    return longest


@pytest.mark.parametrize("member", ["master", "slave"])
def test_a_slow_disk_holds_up_nobody_else(
    run_async: RunAsync, tmp_path: Path, summary_lines: list[str], member: str
) -> None:
    async def scenario() -> str:
        async with replicated_run(tmp_path / "cluster", **PROPERTIES) as run:
            node: ClusterNode = getattr(run, member)
            async with slow_syncs(run, node, SLOW_S, tmp_path / "slow"):
                longest = await longest_answer(run, node, 4.0)
                # It is slow, and not too slow to wait for.
                await run.until_acked(8)
            assert longest < SLOW_S / 2, f"an answer waited {longest:.2f} s, as if for the disk"
            before = run.outcomes[TOLD]
            async with slow_syncs(run, node, HANGS_S, tmp_path / "hangs", ":when=1"):
                hung = await longest_answer(run, node, HANGS_S)
            told = run.outcomes[TOLD] - before
            assert hung < HANGS_S / 4, f"an answer waited {hung:.2f} s, as if for the disk"
            assert told, f"nobody was told that it takes too long: {run.outcomes}"
            await run.until_acked(20)
            await run.stop_load()
            await run.until_same()
            size = await run.check_same_bytes()
            count = await run.check_promises(run.slave)
            await run.check_promises(run.master)
            return (
                f"{count} acknowledged, 0 lost, {size >> 10} KiB alike; syncs of {SLOW_S} s held "
                f"up others for {longest * 1000:.0f} ms, one of {HANGS_S:.0f} s for "
                f"{hung * 1000:.0f} ms, {told} were told so"
            )

    found = run_async(scenario(), limit_s=180)
    summary_lines.append(f"F17 slow disk of a {member}: {found}")
