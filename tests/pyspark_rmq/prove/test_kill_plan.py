"""The order of kills."""

from __future__ import annotations

from itertools import islice

import pytest

from pyspark_rmq.prove.kill_plan import kill_plan, parse_trap
from pyspark_rmq.prove.traps import POINTS, VICTIMS, Trap


def test_every_kill_once_before_any_is_repeated() -> None:
    every = {Trap(point, victim) for point in POINTS for victim in VICTIMS}
    traps = list(islice(kill_plan(7), 2 * len(every)))
    assert set(traps[: len(every)]) == set(traps[len(every) :]) == every


def test_a_seed_repeats_the_kills() -> None:
    first, again, other = (list(islice(kill_plan(seed), 20)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_traps_as_texts() -> None:
    trap = Trap(POINTS[0], VICTIMS[0])
    assert parse_trap(f"{trap.victim}@{trap.point}") == trap
    for text in ("", "driver", f"nobody@{POINTS[0]}", f"{VICTIMS[0]}@nowhere"):
        with pytest.raises(ValueError, match="give victim@point"):
            parse_trap(text)
