"""The kill harness in short: it proves the sink, and finds the bugs that are planted in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from pyspark_rmq.prove.comparison import compare
from pyspark_rmq.prove.kill_plan import kill_plan, parse_trap
from pyspark_rmq.prove.traps import POINTS, REPLICATED_VICTIMS, VICTIMS, Trap

pytest.importorskip("pyspark")

PROJECT = Path(__file__).resolve().parents[2]
IS_LONG = bool(os.environ.get("RMQ_CRASH_LONG"))


def prove(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pyspark_rmq.prove", *arguments],
        cwd=PROJECT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        timeout=1_800 if IS_LONG else 840,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


EVERYTHING = [f"{victim}@{point}" for victim in VICTIMS for point in POINTS]


def at(kills: list[str]) -> list[str]:
    return [word for kill in kills for word in ("--at", kill)]


def assert_exact(kills: list[str], code: int, output: str) -> None:
    assert code == 0, output
    assert f"kills {len(kills)}," in output
    assert "lost 0, duplicated 0, strange 0" in output


def test_every_row_exactly_once() -> None:
    """With Spark itself: one kill of each kind that only Spark recovers from."""
    kills = EVERYTHING if IS_LONG else ["driver@commit_after"]
    assert_exact(kills, *prove(*at(kills)))


def test_every_kill_at_every_point() -> None:
    """Around the steps of Spark's micro-batches, without its JVM."""
    assert_exact(EVERYTHING, *prove("--without-spark", *at(EVERYTHING)))


WITH_A_SLAVE = [f"{victim}@{point}" for victim in REPLICATED_VICTIMS for point in POINTS]


def test_the_slave_dies_and_takes_the_place_of_its_master() -> None:
    """On a SYNC_MASTER with a slave; there and back, so that both have been both."""
    short = ["promotion@commit_before", "slave@write_middle", "promotion@commit_after"]
    kills = WITH_A_SLAVE if IS_LONG else short
    code, output = prove("--without-spark", *at(kills))
    assert_exact(kills, code, output)
    assert f"promotions {sum(kill.startswith('promotion') for kill in kills)}," in output


@pytest.mark.skipif(not IS_LONG, reason="minutes; RMQ_CRASH_LONG=1 runs it")
def test_the_slave_dies_and_takes_the_place_of_its_master_with_spark() -> None:
    assert_exact(WITH_A_SLAVE, *prove(*at(WITH_A_SLAVE)))


PLANTED = (
    ("publish-in-write", "worker@write_after", "duplicated"),
    ("know-by-run", "worker@commit_after", "duplicated"),
    ("acknowledge-first", "worker@commit_before", "lost"),
)


@pytest.mark.parametrize(("plant", "trap", "found"), PLANTED)
def test_a_planted_bug_is_found(plant: str, trap: str, found: str) -> None:
    code, output = prove("--without-spark", "--plant", plant, "--at", trap)
    assert code == 1, output
    assert f"{found} 0" not in output, output


@pytest.mark.skipif(not IS_LONG, reason="a minute each; RMQ_CRASH_LONG=1 runs them")
@pytest.mark.parametrize(("plant", "trap", "found"), PLANTED)
def test_a_planted_bug_is_found_with_spark(plant: str, trap: str, found: str) -> None:
    code, output = prove("--plant", plant, "--at", trap)
    assert code == 1, output
    assert f"{found} 0" not in output, output


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


def test_what_counts_as_exact() -> None:
    assert compare(["a", "b"], ["out-b", "out-a"]).is_exact
    found = compare(["a", "b", "c"], ["out-a", "out-a", "out-b", "x"])
    assert found[2:] == (1, 1, 1)
    assert not found.is_exact
