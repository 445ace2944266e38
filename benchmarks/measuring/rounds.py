"""Rounds of competitors in rotating order, and the figures that are taken from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

MIN_ROUNDS: Final = 3
SAMPLES_FOR_P99: Final = 1_000
SAMPLES_FOR_P90: Final = 100


class Figure(NamedTuple):
    """Results of the rounds of one competitor, in order."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def scaled(self, factor: float) -> Figure:
        """Every value times `factor`."""
        return Figure(tuple(value * factor for value in self.values))


class Ratio(NamedTuple):
    """One competitor over another: of the medians, and round by round."""

    value: float
    low: float
    high: float
    rounds: int


def figure(values: Iterable[float]) -> Figure:
    taken = tuple(values)
    if not taken:
        raise ValueError("a figure needs at least one round")
    return Figure(taken)


def order(number: int, count: int) -> list[int]:
    """The order of the competitors in round `number`: a row of a balanced Latin square.

    Within `count` rounds each competitor has each place once; for an even count each follows every
    other one once. So dirty pages, warm caches and background work of one competitor affect all
    others alike.
    """
    zigzag = [-place // 2 if place % 2 else place // 2 for place in range(count)]
    return [(number + step) % count for step in zigzag]


def in_turns(
    names: Sequence[str], take: Callable[[str, int], object], rounds: int, warm_ups: int = 1
) -> None:
    """Call `take(name, round)` for each competitor in every round; rounds below 0 are warm-ups."""
    if rounds < MIN_ROUNDS:
        raise ValueError(f"{rounds} rounds: a range needs at least {MIN_ROUNDS}")
    for number in range(-warm_ups, rounds):
        for index in order(number + warm_ups, len(names)):
            take(names[index], number)


def compare(
    names: Sequence[str], take: Callable[[str], float], rounds: int, warm_ups: int = 1
) -> dict[str, Figure]:
    """The figure of each, in turns; warm-ups are not counted."""
    taken: dict[str, list[float]] = {name: [] for name in names}

    def once(name: str, number: int) -> None:
        value = take(name)
        if number >= 0:
            taken[name].append(value)

    in_turns(names, once, rounds, warm_ups)
    return {name: figure(values) for name, values in taken.items()}


def ratio_of(ours: Figure, peer: Figure) -> Ratio:
    """Ratio of the medians; the range is that of the ratios, round by round."""
    pairs = [one / other for one, other in zip(ours.values, peer.values, strict=True)]
    return Ratio(ours.median / peer.median, min(pairs), max(pairs), len(pairs))


def better(
    figures: Mapping[str, Figure], names: Sequence[str], *, more_is_better: bool = True
) -> str:
    """The name of the peer that is harder to beat."""
    choose = max if more_is_better else min
    return choose(names, key=lambda name: figures[name].median)


def percentiles(samples: Sequence[float]) -> dict[str, float]:
    """The percentiles that these samples can show: p99 needs a thousand, p90 a hundred."""
    ordered = sorted(samples)
    shares = {"p50": 50}
    if len(ordered) >= SAMPLES_FOR_P90:
        shares["p90"] = 90
    if len(ordered) >= SAMPLES_FOR_P99:
        shares["p99"] = 99
    return {
        name: ordered[min(len(ordered) * share // 100, len(ordered) - 1)]
        for name, share in shares.items()
    }
