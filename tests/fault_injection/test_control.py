"""Who can cause faults: the owner of the pipe, on a broker that was started for it."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.errors import InvalidConfig
from broker_core.fault_injection.control import FaultControl, Request
from tests.cli.rmq_process import LIMIT_S, command, environment

_BUSY = json.dumps({"do": "begin", "fault": "busy", "limit_s": 60}).encode() + b"\n"


def _said(tmp_path: Path, *options: str) -> list[bytes]:
    """What a broker prints that is asked for a fault, and for nonsense."""
    store = ("--store", str(tmp_path / "store"))
    process = subprocess.Popen(
        command("standalone", "--port", "0", "--broker-port", "0", *store, *options),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    lines = [process.stdout.readline()]
    process.stdin.write(_BUSY + b"nonsense\n[]\n" + _BUSY[:9])
    process.stdin.flush()
    if "--test-control" in options:
        lines += [process.stdout.readline() for _ in range(3)]
    # The end of its input is the end of the broker.
    lines += process.communicate(timeout=LIMIT_S)[0].splitlines()
    assert process.returncode == 0
    return lines


def test_only_a_broker_that_was_started_for_tests_takes_orders(tmp_path: Path) -> None:
    assert len(_said(tmp_path, "--exit-with-parent")) == 1
    _, done, nonsense, empty = _said(tmp_path, "--exit-with-parent", "--test-control")
    assert json.loads(done) == {"ok": True, "sync_failed": False}
    assert json.loads(nonsense)["ok"] is False
    assert json.loads(empty)["ok"] is False


class _BrokenControl(FaultControl):
    async def _do(self, request: Request) -> dict[str, Any]:
        raise RuntimeError(f"cannot {request['do']}")


def test_an_unexpected_error_is_answered() -> None:
    answer = asyncio.run(_BrokenControl(BrokerConfig()).answer('{"do": "advance"}'))
    assert json.loads(answer) == {"ok": False, "error": "RuntimeError: cannot advance"}


def test_a_broker_that_others_can_reach_takes_no_orders() -> None:
    config = BrokerConfig(allow_remote=True)
    with pytest.raises(InvalidConfig, match="allowRemote"):
        FaultControl(config)


def test_help_does_not_offer_it(tmp_path: Path) -> None:
    shown = subprocess.run(
        command("standalone", "--help"), capture_output=True, env=environment(), check=True
    ).stdout
    assert b"--test-" not in shown
