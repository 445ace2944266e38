"""The parts of the kill harness: its ledger, its comparisons, its second reader, its exit codes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from broker_core import errors
from pyspark_rmq import EmbeddedBroker
from pyspark_rmq.prove import __main__ as command_line
from pyspark_rmq.prove.comparison import Comparison, compare, compare_bodies, judge_intake
from pyspark_rmq.prove.harness import PULL, Harness, Proof
from pyspark_rmq.prove.ledger import Entry, Ledger, digest_of, name_of
from pyspark_rmq.prove.reader_command import read_by_command
from pyspark_rmq.prove.stored_bodies import stored_bodies
from pyspark_rmq.prove.traps import (
    BROKER,
    FOLDER_VARIABLE,
    PROMOTION,
    SLAVE,
    Trap,
    arm,
    pass_point,
)

BODIES = ("m0:aa", "m1:bb", "m2:cc")
DIGESTS = {name_of(body): digest_of(body) for body in BODIES}
EXACT = Comparison(3, 3, 0, 0, 0)


def proof(acknowledged: int = 3, missing: int = 0, **read: Comparison) -> Proof:
    return Proof(1, 2, 1, 1, 0, acknowledged, missing, {PULL: EXACT, **read})


def test_a_ledger_has_every_row_once(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    assert ledger.digests() == {}
    ledger.add(Entry(name_of(body), digest_of(body), "ID") for body in BODIES[:2])
    ledger.add([Entry("m2", digest_of("m2:cc"), "ID")])
    assert Ledger(ledger.path).digests() == DIGESTS
    ledger.add([Entry("m2", digest_of("m2:dd"), "ID")])
    with pytest.raises(ValueError, match="m2"):
        ledger.digests()


def test_where_no_row_went_in_nothing_was_shown() -> None:
    assert not compare([], []).is_exact
    assert not proof(acknowledged=0).is_exact
    assert proof().is_exact


def test_every_reader_must_agree() -> None:
    assert proof(files=EXACT).is_exact
    assert not proof(files=Comparison(3, 4, 0, 1, 0)).is_exact
    assert not proof(missing=1).is_exact


def test_a_changed_body_is_a_lost_row_and_a_strange_one() -> None:
    out = [f"out-{body}" for body in BODIES]
    assert compare_bodies(DIGESTS, out).is_exact
    assert compare_bodies(DIGESTS, [*out[:2], "out-m2:cd"]) == (3, 3, 1, 0, 1)
    assert compare_bodies(DIGESTS, [*out[:2], "m2:cc"]) == (3, 3, 1, 0, 1)
    assert compare_bodies(DIGESTS, [*out, out[0]]) == (3, 4, 0, 1, 0)


def test_acknowledged_rows_are_expected_whatever_the_topic_says() -> None:
    acknowledged = {name: DIGESTS[name] for name in ("m0", "m1")}
    # The topic has lost m1, and stored m2, which was never answered.
    intake = judge_intake(DIGESTS, acknowledged, ["m0:aa", "m2:cc"])
    assert (intake.digests, intake.acknowledged, intake.missing) == (DIGESTS, 2, 1)
    # A row without an answer that is not there was never stored.
    assert judge_intake(DIGESTS, acknowledged, BODIES[:2]) == (acknowledged, 2, 0)
    # An acknowledged row that is there twice, or changed.
    assert judge_intake(DIGESTS, acknowledged, [*BODIES[:2], BODIES[0]]).missing == 1
    assert judge_intake(DIGESTS, acknowledged, ["m0:aa", "m1:xx"]).missing == 1


def test_files_are_read_without_the_broker(tmp_path: Path) -> None:
    sent = [f"m{number}:text" for number in range(500)]
    with EmbeddedBroker(store=tmp_path, topics={"T": 3, "other": 1}) as broker:
        broker.produce("T", sent)
        broker.produce("other", ["x"] * 20)
    assert sorted(stored_bodies(tmp_path, "T")) == sorted(sent)
    assert stored_bodies(tmp_path, "absent") == []
    log = min((tmp_path / "commitlog").iterdir())
    with log.open("r+b") as file:
        damaged = file.read(1 << 20).index(b"m77:text")
        file.seek(damaged)
        file.write(b"M")
    found = stored_bodies(tmp_path, "T")
    assert sorted(set(sent) - set(found)) == ["m77:text"]
    assert [body for body in found if body.startswith("unreadable T/")]


def test_a_reader_that_fails_shows_nothing() -> None:
    options = {"rmq.namesrv.addr": "127.0.0.1:9"}
    script = f"{sys.executable} -c 'import sys; print(*sys.argv[1:], sep=chr(10))'"
    assert read_by_command(script, options, "T") == ["127.0.0.1:9", "T"]
    for broken in (f"{sys.executable} -c 'raise SystemExit(4)'", "/does/not/exist"):
        with pytest.raises(errors.UnexpectedAnswer, match="--reader"):
            read_by_command(broken, options, "T")


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


def test_a_trap_kills_its_own_victim_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that read the trap of another one does not take the next trap in its place."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    arm(tmp_path, Trap("write_middle", SLAVE))
    read_text = Path.read_text

    def replaced_after_reading(path: Path) -> str:
        text = read_text(path)
        if path.name == "trap.json":
            path.unlink()
            arm(tmp_path, Trap("commit_after", PROMOTION))
        return text

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_text", replaced_after_reading)
        pass_point("write_middle")
    assert read_text(tmp_path / "trap.json") == '["commit_after", "promotion"]'
