"""F04: system calls of a real process fail with EIO, by injection with strace.

For every call and moment: no acknowledgement after a failed sync, and everything acknowledged is
there afterwards. The call fails once only; a store that tries again would see it succeed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from broker_core.store.message_store import MessageStore
from tests.crash.store_process import SMALL, Promises, StoreProcess, make_config, missing_or_wrong

pytestmark = [pytest.mark.crash, pytest.mark.root]

# (calls, which one of a thread's calls fails)
CASES = (
    *(("fdatasync", nth) for nth in (1, 3, 4, 6, 9, 30)),
    *(("fsync", nth) for nth in (1, 3, 5)),
    *(("pwrite64", nth) for nth in (1, 3, 12)),
    ("ftruncate", 2),
    ("fallocate", 2),
    ("rename,renameat,renameat2", 1),
)
PUTS = 1_500


def can_trace() -> bool:
    """strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    probe = subprocess.run(
        ["strace", "-f", "-o", "/dev/null", "-e", "trace=none", "true"],
        check=False,
        capture_output=True,
        timeout=300,
    )
    return probe.returncode == 0


@pytest.fixture(scope="module")
def strace() -> None:
    if not can_trace():
        pytest.skip("F04 needs strace and the right to trace a child: not run")


def wrapper(calls: str, nth: int, trace: Path) -> list[str]:
    """Only the calls in question are stopped at; the rest runs at full speed."""
    inject = f"inject={calls}:error=EIO:when={nth}"
    return ["strace", "-f", "--seccomp-bpf", "-o", str(trace), "-e", f"trace={calls}", "-e", inject]


@pytest.mark.usefixtures("strace")
def test_an_injected_error_never_costs_an_acknowledged_message(
    tmp_path: Path, summary_lines: list[str]
) -> None:
    started = time.monotonic()
    fenced = refused = injected = 0
    acked = 0
    for case, (calls, nth) in enumerate(CASES):
        label = f"{calls} number {nth}"
        directory = tmp_path / str(case)
        trace = tmp_path / f"{case}.trace"
        promises = Promises()
        with StoreProcess(directory, promises, wrapper=wrapper(calls, nth, trace)) as child:
            opened = child.wait_for("open", "refused")
            if opened[:1] == ["open"]:
                child.command(f"put 0 {PUTS}")
                child.send("close")
            status, errors = child.finish()
        injected += "INJECTED" in trace.read_text()
        refused += opened[:1] == ["refused"]
        assert status in (0, 3), f"{label}: exit status {status}: {errors[-2000:]}"
        assert "Traceback" not in errors, f"{label}: {errors[-2000:]}"
        if "sync" in calls and "UNKNOWN_ERROR" in promises.refusals:
            fenced += 1
            assert not promises.acked_after_refusal, f"{label}: acknowledged after a failed sync"
        with MessageStore.open(directory, make_config(SMALL)) as store:
            problems, _ = missing_or_wrong(store, promises)
        assert not problems, f"{label}: {problems[:5]}"
        acked += len(promises.acked)
    assert injected == len(CASES), "some errors were never injected"
    assert fenced >= 3
    summary_lines.append(
        f"F04 injected errors  {len(CASES)} runs: {acked} acknowledged, 0 lost, {fenced} fenced, "
        f"{refused} refused to open, {time.monotonic() - started:.0f} s"
    )
