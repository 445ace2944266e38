"""What the system reports about processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from broker_core.embedded.process_identity import (
    GONE,
    ancestors_of,
    arguments_of,
    birth_of,
    locked,
    program_of,
    send_signal,
    wait_for_end,
)
from tests.cli.rmq_process import LIMIT_S

_WAITING = [sys.executable, "-c", "print('up', flush=True); input()"]


def test_a_process_from_its_birth_to_its_end() -> None:
    with subprocess.Popen(_WAITING, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        birth = birth_of(child.pid)
        assert birth.isdigit()
        assert birth == birth_of(child.pid)
        assert ancestors_of(child.pid)[:2] == [child.pid, os.getpid()]
        assert arguments_of(child.pid) == _WAITING
        assert program_of(child.pid) == program_of(os.getpid())
        assert not wait_for_end(child.pid, 0)
        send_signal(child.pid, signal.SIGKILL)
        assert wait_for_end(child.pid, LIMIT_S)
        assert birth_of(child.pid) == GONE
        child.wait()
    assert wait_for_end(child.pid, 0)
    send_signal(child.pid, signal.SIGKILL)
    assert arguments_of(child.pid) == []
    assert program_of(child.pid) == ""


def test_a_lock_is_released(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "lock"):
            pass
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
