"""Order of competitors, medians, ranges and ratios."""

from __future__ import annotations

import pytest

from benchmarks.measuring import rounds
from benchmarks.measuring.rounds import Ratio, better, compare, figure, order, percentiles, ratio_of


@pytest.mark.parametrize("count", range(1, 14))
def test_each_competitor_has_each_place_once(count: int) -> None:
    found = [order(number, count) for number in range(count)]
    places_wanted = list(range(count))
    assert all(sorted(one) == places_wanted for one in found)
    assert all(sorted(places) == places_wanted for places in zip(*found, strict=True))


@pytest.mark.parametrize("count", range(2, 14, 2))
def test_each_of_an_even_number_of_competitors_follows_each_other_once(count: int) -> None:
    pairs = [
        pair
        for number in range(count)
        for pair in zip(order(number, count), order(number, count)[1:], strict=False)
    ]
    assert len(set(pairs)) == len(pairs) == count * (count - 1)


def test_rounds_rotate_and_the_first_is_a_warm_up() -> None:
    asked: list[str] = []

    def take(name: str) -> float:
        asked.append(name)
        return float(len(asked))

    found = compare(["a", "b", "c"], take, 3)
    turns = ["".join(asked[first : first + 3]) for first in range(0, 12, 3)]
    assert len(set(turns)) == 3
    assert turns[3] == turns[0]
    # Values 1 to 3 are those of the warm-up.
    assert sorted(value for one in found.values() for value in one.values) == list(range(4, 13))
    assert {name: len(one.values) for name, one in found.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_range_needs_three_rounds() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        compare(["a"], lambda _: 1.0, 2)


def test_a_figure_has_median_and_range() -> None:
    found = figure([5.0, 1.0, 3.0, 100.0])
    assert (found.median, found.low, found.high) == (4.0, 1.0, 100.0)
    assert found.scaled(2).values == (10.0, 2.0, 6.0, 200.0)
    with pytest.raises(ValueError, match="at least one"):
        figure([])


def test_a_ratio_is_that_of_the_medians_with_the_range_of_the_rounds() -> None:
    found = ratio_of(figure([4.0, 6.0, 20.0]), figure([2.0, 6.0, 5.0]))
    assert found == Ratio(6 / 5, 1.0, 4.0, 3)


def test_the_better_peer_is_the_one_to_beat() -> None:
    figures = {"default": figure([1.0, 9.0, 2.0]), "tuned": figure([3.0, 3.0, 3.0])}
    assert better(figures, ["default", "tuned"]) == "tuned"
    assert better(figures, ["default", "tuned"], more_is_better=False) == "default"


def test_few_samples_have_no_tail() -> None:
    assert percentiles([3.0, 1.0, 2.0]) == {"p50": 2.0}
    assert set(percentiles(range(100))) == {"p50", "p90"}
    assert set(percentiles(range(rounds.SAMPLES_FOR_P99 - 1))) == {"p50", "p90"}
    many = list(range(rounds.SAMPLES_FOR_P99))
    assert percentiles(many[::-1]) == {"p50": 500, "p90": 900, "p99": 990}
