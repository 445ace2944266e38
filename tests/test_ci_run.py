"""`.ci/run` reports how `make test` ended and leaves nothing running."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 300
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds processes through /proc")

# Stands for `make`: one process of its group and one with a session of its own, and their ids.
MAKE = """#!/usr/bin/env bash
sleep 3600 &
echo $! >>started
setsid sleep 3600 &
echo $! >>started
setsid bash -c 'trap "" TERM; touch deaf; sleep 3600; sleep 3600' &
echo $! >>started
# Before its trap is set, the request to end would end it.
until [ -e deaf ]; do sleep 0.05; done
touch all-started
{end}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the script alone, and a `make` of its own in `bin`."""
    place = tmp_path / "checkout"
    (place / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", place / ".ci" / "run")
    (place / ".gitignore").write_text("*\n", encoding="utf-8")
    subprocess.run(["git", "init", "-q", str(place)], check=True, timeout=LIMIT_S)
    return place


def started(place: Path, end: str, script: str = MAKE) -> subprocess.Popen[str]:
    tools = place / "bin"
    tools.mkdir()
    (tools / "make").write_text(script.format(end=end), encoding="utf-8")
    (tools / "make").chmod(0o755)
    return subprocess.Popen(
        ["bash", str(place / ".ci" / "run")],
        env={**os.environ, "CI_GRACE_S": "1", "PATH": f"{tools}:{os.environ['PATH']}"},
        stderr=subprocess.PIPE,
        text=True,
    )


def running(place: Path) -> list[int]:
    """Of the processes that `make` started, those that have not ended."""
    ids = [int(line) for line in (place / "started").read_text(encoding="utf-8").split()]
    assert len(ids) == 3
    return [number for number in ids if _is_running(number)]


def _is_running(number: int) -> bool:
    try:
        status = Path(f"/proc/{number}/status").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return "\nState:\tZ" not in status


@pytest.mark.parametrize(("end", "code"), [("exit 0", 0), ("exit 2", 2), ("kill -9 $$", 137)])
def test_nothing_is_left_running(checkout: Path, end: str, code: int) -> None:
    run = started(checkout, end)
    _, errors = run.communicate(timeout=LIMIT_S)
    assert run.returncode == code, errors
    assert running(checkout) == []
    # The one that ignores the request to end, by its name.
    assert "left running, ended by SIGKILL" in errors


def test_a_run_that_leaves_nothing_says_nothing(checkout: Path) -> None:
    run = started(checkout, "sleep 0", script="#!/bin/sh\n{end}\n")
    _, errors = run.communicate(timeout=LIMIT_S)
    assert (run.returncode, errors) == (0, "")


def test_a_run_that_is_called_off_leaves_nothing_either(checkout: Path) -> None:
    run = started(checkout, "mkfifo gate; echo >at-gate; read _ <gate")
    try:
        # The fifo is the event: a writer is let in when `make` reads from it.
        while not (checkout / "at-gate").exists():
            assert run.poll() is None
        assert len(running(checkout)) == 3
    finally:
        run.send_signal(signal.SIGTERM)
        _, errors = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 143, errors
    assert running(checkout) == []


def test_a_changed_checkout_is_reported(checkout: Path) -> None:
    (checkout / ".gitignore").write_text("started\ndeaf\nall-started\nbin\n", encoding="utf-8")
    run = started(checkout, "touch written-by-a-test")
    _, errors = run.communicate(timeout=LIMIT_S)
    assert run.returncode == 1
    assert "make test changed the checkout" in errors
    assert "written-by-a-test" in errors
