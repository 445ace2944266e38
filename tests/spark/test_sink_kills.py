"""The kill harness in short: it proves the sink, and finds the bugs that are planted in it.

Real Spark is killed at a few points in every run, which change from day to day, and at all of them
with `LONG=1`. `RMQ_KILL_TURN=N` repeats the choice of another day; the summary of a run names it.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

import pytest

from pyspark_rmq.prove.brokers import OneBroker
from pyspark_rmq.prove.comparison import compare
from pyspark_rmq.prove.harness import Harness, Proof
from pyspark_rmq.prove.kill_plan import kill_plan, parse_trap
from pyspark_rmq.prove.killing_sink import PLANTS
from pyspark_rmq.prove.traps import POINTS, REPLICATED_VICTIMS, VICTIMS, Trap
from tests.interop.java_client import client_class_path
from tests.interop.java_topic_reader import read_topic
from tests.interop.maven_artifacts import PeerUnavailable

pytest.importorskip("pyspark")
pytestmark = pytest.mark.crash

PROJECT = Path(__file__).resolve().parents[2]
IS_LONG = bool(os.environ.get("RMQ_CRASH_LONG"))
# Read here: tests run without variables of the caller's shell.
TURN = int(
    os.environ.get("RMQ_KILL_TURN") or datetime.datetime.now(datetime.timezone.utc).toordinal()
)
FIGURES = re.compile(
    r"^kills (?P<kills>\d+), .* acknowledged (?P<acknowledged>\d+), rows in (?P<rows_in>\d+), "
    r"rows out (?P<rows_out>\d+), lost (?P<lost>\d+), duplicated (?P<duplicated>\d+), "
    r"strange (?P<strange>\d+)$",
    re.MULTILINE,
)


def prove(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pyspark_rmq.prove", *arguments],
        cwd=PROJECT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=3_600 if IS_LONG else 840,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def figures(output: str) -> dict[str, int]:
    """Of the report; a run that ended without one is no finding."""
    found = FIGURES.search(output)
    assert found is not None, output
    return {name: int(value) for name, value in found.groupdict().items()}


EVERYTHING = [f"{victim}@{point}" for victim in VICTIMS for point in POINTS]


def rotating_traps(turn: int) -> list[Trap]:
    """One kill of each victim; `len(POINTS)` consecutive turns make every kill."""
    return [
        Trap(POINTS[(turn + number) % len(POINTS)], victim) for number, victim in enumerate(VICTIMS)
    ]


def at(kills: list[str]) -> list[str]:
    return [word for kill in kills for word in ("--at", kill)]


def assert_exact(kills: list[str], code: int, output: str) -> None:
    assert code == 0, output
    found = figures(output)
    assert found["kills"] == len(kills)
    assert found["acknowledged"] > 0
    assert found["rows_in"] == found["rows_out"] >= found["acknowledged"]
    assert (found["lost"], found["duplicated"], found["strange"]) == (0, 0, 0)
    assert f"read by files: rows in {found['rows_in']}, rows out {found['rows_in']}," in output


def test_every_row_exactly_once(summary_lines: list[str]) -> None:
    """With Spark itself: one kill of each victim in every run, each at each point in some run."""
    kills = EVERYTHING if IS_LONG else [f"{t.victim}@{t.point}" for t in rotating_traps(TURN)]
    summary_lines.append(
        f"sink, kills of real Spark (RMQ_KILL_TURN={TURN} repeats them): {', '.join(kills)}"
    )
    assert_exact(kills, *prove(*at(kills)))


def test_every_kill_at_every_point() -> None:
    """Around the steps of Spark's micro-batches, without its JVM."""
    assert_exact(EVERYTHING, *prove("--without-spark", *at(EVERYTHING)))


WITH_A_SLAVE = [f"{victim}@{point}" for victim in REPLICATED_VICTIMS for point in POINTS]


def test_the_slave_is_killed_and_promoted() -> None:
    """On a SYNC_MASTER with a slave; there and back, so that both have been both."""
    short = ["promotion@commit_before", "slave@write_middle", "promotion@commit_after"]
    kills = WITH_A_SLAVE if IS_LONG else short
    code, output = prove("--without-spark", *at(kills))
    assert_exact(kills, code, output)
    assert f"promotions {sum(kill.startswith('promotion') for kill in kills)}," in output
    assert f"read by files of the slave: rows in {figures(output)['rows_in']}," in output


@pytest.mark.skipif(not IS_LONG, reason="minutes; RMQ_CRASH_LONG=1 runs it")
def test_the_slave_is_killed_and_promoted_with_spark() -> None:
    assert_exact(WITH_A_SLAVE, *prove(*at(WITH_A_SLAVE)))


@pytest.mark.skipif(not IS_LONG, reason="minutes; RMQ_CRASH_LONG=1 runs it")
def test_java_reads_the_same_rows() -> None:
    """What came out of kills of real Spark, as Apache's client finds it."""
    try:
        client_class_path("5.5.0")
    except PeerUnavailable as missing:
        pytest.skip(str(missing))
    reader = f"{sys.executable} -m {read_topic.__module__}"
    kills = ["driver@commit_after", "broker@commit_before", "promotion@commit_after"]
    code, output = prove("--reader", reader, *at(kills))
    assert_exact(kills, code, output)
    rows = figures(output)["rows_in"]
    assert f"read by command: rows in {rows}, rows out {rows}, lost 0, duplicated 0" in output


class Planted:
    """A bug, the kill that brings it out, and what it does to the first batch."""

    def __init__(self, plant: str, trap: str, **found: int) -> None:
        self.plant = plant
        self.trap = trap
        self.found = {"lost": 0, "duplicated": 0, "strange": 0, **found}

    def __repr__(self) -> str:
        return self.plant


# The first batch has 300 rows in two tasks: one task's rows, or all of them. The harness loses a
# row of each of its two sends.
PLANTED = (
    Planted("publish-in-write", "worker@write_after", duplicated=150),
    Planted("know-by-run", "worker@commit_after", duplicated=300),
    Planted("acknowledge-first", "worker@commit_before", lost=300),
    Planted("lose-acknowledged", "worker@write_before", lost=2),
)


def assert_found(found: Mapping[str, int], planted: Planted) -> None:
    for name, expected in planted.found.items():
        assert found[name] == expected, (name, found)
    assert_consistent(found)


def assert_consistent(found: Mapping[str, int]) -> None:
    assert found["acknowledged"] == found["rows_in"] == 600
    change = found["duplicated"] + found["strange"] - found["lost"]
    assert found["rows_out"] == found["rows_in"] + change


def test_every_planted_bug_is_tried() -> None:
    assert [planted.plant for planted in PLANTED] == list(PLANTS)


def test_a_planted_bug_is_found_whatever_the_kills_are() -> None:
    """With this seed the only kill would be the stop of a query, which hides the bug."""
    arguments = (
        "--without-spark",
        "--plant",
        "know-by-run",
        "--kills",
        "1",
        "--seed",
        "1437360788",
    )
    code, output = prove(*arguments)
    assert code == 1, output
    assert figures(output)["duplicated"] == 300, output


@pytest.mark.parametrize("planted", PLANTED, ids=repr)
def test_a_planted_bug_is_found(planted: Planted) -> None:
    code, output = prove("--without-spark", "--plant", planted.plant, "--at", planted.trap)
    assert code == 1, output
    assert_found(figures(output), planted)


@pytest.mark.skipif(not IS_LONG, reason="a minute each; RMQ_CRASH_LONG=1 runs them")
@pytest.mark.parametrize("planted", PLANTED, ids=repr)
def test_a_planted_bug_is_found_with_spark(planted: Planted) -> None:
    code, output = prove("--plant", planted.plant, "--at", planted.trap)
    assert code == 1, output
    found = figures(output)
    if planted.plant == "publish-in-write":
        # Spark splits 300 rows in two in any way and may run both tasks again, more than once.
        assert found["duplicated"] >= 146
        assert (found["lost"], found["strange"]) == (0, 0)
        assert_consistent(found)
    else:
        assert_found(found, planted)


def proven(folder: Path, *traps: str, plant: str = "", rows_per_kill: int = 300) -> Proof:
    with Harness(folder, str, plant=plant, spark=False, rows_per_kill=rows_per_kill) as harness:
        return harness.run(map(parse_trap, traps))


def test_a_run_without_rows_proves_nothing(tmp_path: Path) -> None:
    found = proven(tmp_path, rows_per_kill=0)
    assert not found.is_exact
    assert found.acknowledged == 0
    assert set(found.comparisons.values()) == {(0, 0, 0, 0, 0)}


def test_the_second_reader_finds_what_a_client_hides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that drops repeated messages would hide a sink that repeats them."""
    consume = OneBroker.consume
    monkeypatch.setattr(
        OneBroker, "consume", lambda broker, topic: sorted(set(consume(broker, topic)))
    )
    found = proven(tmp_path, "worker@write_after", plant="publish-in-write")
    assert found.comparison == (600, 600, 0, 0, 0)
    assert found.comparisons["files"] == (600, 750, 0, 150, 0)
    assert not found.is_exact


def test_a_plan_passes_every_point_with_every_victim() -> None:
    count = len(POINTS) * len(VICTIMS)
    plan = list(islice(kill_plan(7), 2 * count))
    assert plan == list(islice(kill_plan(7), 2 * count))
    assert set(Counter(plan).values()) == {2}
    assert plan != list(islice(kill_plan(8), 2 * count))
    assert parse_trap("driver@commit_after") == Trap("commit_after", "driver")
    assert parse_trap("promotion@commit_after") == Trap("commit_after", "promotion")
    assert {trap.victim for trap in islice(kill_plan(7, REPLICATED_VICTIMS), 10)} == {
        "slave",
        "promotion",
    }
    with pytest.raises(ValueError, match="victim@point"):
        parse_trap("driver@lunch")


@pytest.mark.parametrize("first", [0, 739_572])
def test_turns_come_to_every_kill(first: int) -> None:
    turns = [rotating_traps(turn) for turn in range(first, first + len(POINTS))]
    assert all([trap.victim for trap in turn] == list(VICTIMS) for turn in turns)
    assert len({trap for turn in turns for trap in turn}) == len(POINTS) * len(VICTIMS)
    assert rotating_traps(first) == turns[0]


def test_what_counts_as_exact() -> None:
    assert compare(["a", "b"], ["out-b", "out-a"]).is_exact
    found = compare(["a", "b", "c"], ["out-a", "out-a", "out-b", "x"])
    assert found[2:] == (1, 1, 1)
    assert not found.is_exact
