"""Which processes are killed where: every point and victim before any comes a second time. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pyspark_rmq.prove.traps import BROKER, DRIVER, POINTS, QUERY, WORKER, Trap


def kill_plan(seed: int, victims: tuple[str, ...] = (DRIVER, BROKER, WORKER, QUERY)) -> Iterator[Trap]:
    """Endless; the same for the same seed."""
    order = random.Random(seed)
    # A start of the driver takes most of the time, so the others come more often.
    while True:
        traps = [Trap(point, victim) for point in POINTS for victim in victims]
        order.shuffle(traps)
        yield from traps


def parse_trap(text: str) -> Trap:
    """`driver@commit_after`; raises `ValueError`."""
    victim, _, point = text.partition("@")
    if point not in POINTS or victim not in (DRIVER, BROKER, WORKER, QUERY):
        raise ValueError(f"{text!r:.80}: give victim@point, for example driver@commit_after")
    return Trap(point, victim)
