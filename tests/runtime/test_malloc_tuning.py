"""Memory of large buffers is kept where the C library can do that."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from broker_core.runtime import lane_worker
from broker_core.runtime.malloc_tuning import keep_freed_memory, return_free_memory

_FAULTS = """
import resource
from broker_core.runtime.malloc_tuning import keep_freed_memory
if {keeps}:
    assert keep_freed_memory()
bytearray(4 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(b"x") * (4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(keeps: bool, **environment: str) -> int:
    code = _FAULTS.format(keeps=keeps)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do as they like")
@pytest.mark.skipif(lane_worker._lanes is None, reason="the native part is not built")
def test_large_buffers_are_not_fetched_again() -> None:
    path = ":".join(sys.path)
    # Without it each of them is fetched anew, in pages of the system.
    assert _faults(True, PYTHONPATH=path) < 20 * 100


_RESIDENT = """
import os
from broker_core.runtime.malloc_tuning import keep_freed_memory, return_free_memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
assert keep_freed_memory()
start = resident()
pieces = [bytearray(b"x") * 100_000 for _ in range(300)]
used = resident()
del pieces
kept = resident()
assert return_free_memory()
print(used - start, kept - start, resident() - start)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do as they like")
@pytest.mark.skipif(lane_worker._lanes is None, reason="the native part is not built")
def test_free_memory_is_returned_once_on_request() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _RESIDENT],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    used, kept, returned = map(int, done.stdout.split())
    assert used > 29_000_000
    assert kept > 20_000_000, "freed memory is kept"
    assert returned < 3_000_000


def test_without_the_native_part_nothing_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "broker_core.runtime._system_lane", None)
    assert not return_free_memory()
    assert not keep_freed_memory()


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1000000")
    assert not keep_freed_memory()
