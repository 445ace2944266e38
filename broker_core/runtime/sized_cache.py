"""An LRU cache limited by the total size of its entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

# Entries larger than one in this many parts of the cache are not kept: they would evict too many.
_SHARE: Final = 8


class SizedCache(Generic[K, V]):
    """Keeps the most recently used entries, up to `size_max` by `size_of(key, value)`."""

    def __init__(self, size_max: int, size_of: Callable[[K, V], int]) -> None:
        self._size_max = size_max
        self._size_of = size_of
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, make: Callable[[K], V]) -> V:
        """The cached value of `key`, or `make(key)`. Errors of `make` are not cached."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
            return found[0]
        value = make(key)
        size = self._size_of(key, value)
        if size <= self._size_max // _SHARE:
            self._entries[key] = value, size
            self.size += size
            while self.size > self._size_max:
                self.size -= self._entries.popitem(last=False)[1][1]
        return value
