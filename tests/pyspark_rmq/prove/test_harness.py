"""The parts of the kill harness: its ledger, its comparisons, its second reader, its exit codes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from pyspark_rmq.prove import __main__ as command_line
from pyspark_rmq.prove.comparison import Comparison
from pyspark_rmq.prove.harness import PULL, Harness, Proof
from pyspark_rmq.prove.traps import (
    BROKER,
    PROMOTION,
    SLAVE,
    Trap,
)

EXACT = Comparison(3, 3, 0, 0, 0)


def proof(acknowledged: int = 3, missing: int = 0, **read: Comparison) -> Proof:
    return Proof(1, 2, 1, 1, 0, acknowledged, missing, {PULL: EXACT, **read})


@pytest.mark.parametrize(
    ("shown", "code", "said"),
    [
        (proof(files=EXACT), 0, "read by files: rows in 3, rows out 3, lost 0, duplicated 0"),
        (proof(files=Comparison(3, 4, 0, 1, 0)), 1, "read by files: rows in 3, rows out 4, lost 0"),
        (proof(missing=2), 1, "2 acknowledged rows are not in the source topic"),
        (proof(acknowledged=0), 1, "no row was acknowledged"),
        (None, 3, "not finished"),
    ],
)
def test_a_crash_of_the_harness_is_no_finding(
    shown: Proof | None,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run(harness: Harness, traps: object) -> Proof:
        if shown is None:
            raise RuntimeError("a mistake of the harness")
        return shown

    monkeypatch.setattr(Harness, "run", run)
    assert command_line.main(["--at", "worker@write_after", "--without-spark"]) == code
    output = capsys.readouterr().out
    assert said in output
    assert ("kills 1," in output) is (code != 3)


@pytest.mark.parametrize("kills", ["0", "-1", "many"])
def test_a_proof_needs_kills(kills: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--kills", kills])
    assert ended.value.code == 2
    assert "at least 1" in capsys.readouterr().err


class DyingBrokers:
    """Brokers whose victim is killed by every send and ends some looks after its trap is sprung."""

    def __init__(self, folder: Path) -> None:
        self._trap = folder / "trap.json"
        self._looks = 0
        self.starts = self.promotions = self.sends = 0
        self.armed_too_early = False

    options: ClassVar[dict[str, str]] = {}

    def tend(self, *, promotes: bool) -> bool:
        return False

    def processes(self) -> dict[str, list[int]]:
        return {BROKER: [1], SLAVE: [2]}

    def running(self) -> set[int]:
        if self._looks:
            self.armed_too_early |= self._trap.exists()
            self._looks -= 1
            return {1, 2}
        return set()

    def produce(self, topic: str, bodies: Sequence[str]) -> dict[str, str]:
        self.sends += 1
        if self.sends == 3:
            raise InterruptedError
        self._trap.unlink()
        self._looks = 3
        return dict.fromkeys(bodies, "ID")

    def consume(self, topic: str) -> list[str]:
        raise NotImplementedError

    def close_stores(self) -> dict[str, Path]:
        raise NotImplementedError

    def stop(self) -> None:
        """Nothing runs."""


def test_the_next_trap_is_armed_after_the_victim_of_the_last_has_ended(tmp_path: Path) -> None:
    """Otherwise it kills the master while the slave is away, and no master is left to wait for."""
    harness = Harness(tmp_path, str, spark=False)
    brokers = harness._brokers = DyingBrokers(tmp_path)
    with harness, pytest.raises(InterruptedError):
        harness.run([Trap("write_middle", SLAVE), Trap("commit_after", PROMOTION)])
    assert brokers.sends == 3
    assert brokers._looks == 0
    assert not brokers.armed_too_early
