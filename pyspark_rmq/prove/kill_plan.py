"""Order of kills: every combination of point and victim before any is repeated. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from pyspark_rmq.prove.traps import POINTS, REPLICATED_VICTIMS, VICTIMS, Trap


def kill_plan(seed: int, victims: Sequence[str] = VICTIMS) -> Iterator[Trap]:
    """Endless; deterministic for a seed."""
    order = random.Random(seed)
    while True:
        traps = [Trap(point, victim) for point in POINTS for victim in victims]
        order.shuffle(traps)
        yield from traps


def parse_trap(text: str) -> Trap:
    """`driver@commit_after`; raises `ValueError`."""
    victim, _, point = text.partition("@")
    if point not in POINTS or victim not in (*VICTIMS, *REPLICATED_VICTIMS):
        raise ValueError(f"{text!r:.80}: give victim@point, for example driver@commit_after")
    return Trap(point, victim)
