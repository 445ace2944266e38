"""A cache with a size limit: what it keeps, evicts and never stores."""

from __future__ import annotations

import pytest

from broker_core.runtime.sized_cache import SizedCache


def make_cache() -> SizedCache[str, str]:
    return SizedCache(100, lambda key, value: len(value))


def test_a_cache_keeps_what_was_used_last() -> None:
    made: list[str] = []
    cache = make_cache()

    def value_of(key: str) -> str:
        made.append(key)
        return key * 10

    for key in "abcdefghij":
        assert cache.get(key, value_of) == key * 10
    assert (cache.size, len(cache)) == (100, 10)
    cache.get("a", value_of)
    cache.get("k", value_of)
    assert (cache.size, len(cache)) == (100, 10)
    made.clear()
    cache.get("a", value_of)
    cache.get("b", value_of)
    assert made == ["b"], "the one that was not used for the longest time went"


def test_large_values_are_made_and_not_kept() -> None:
    cache = make_cache()
    assert cache.get("x", lambda _: "v" * 13) == "v" * 13
    assert (cache.size, len(cache)) == (0, 0)


def test_errors_are_not_kept() -> None:
    cache = make_cache()

    def fails(key: str) -> str:
        raise ValueError(key)

    for _ in range(2):
        with pytest.raises(ValueError, match="x"):
            cache.get("x", fails)
    assert len(cache) == 0
