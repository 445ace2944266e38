"""What readers may see of a log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker_core.runtime.watermark import Watermark
from broker_core.store.replication.unreplicated_tail import UnreplicatedTail
from broker_core.store.visibility import Visibility

FLUSH: Any = SimpleNamespace(committed_position=100, flushed=Watermark(60))


@pytest.mark.parametrize(("is_async", "limit"), [(True, 100), (False, 60)])
def test_the_flush_mode_sets_the_limit(is_async: bool, limit: int) -> None:
    visibility = Visibility(FLUSH, is_async=is_async)
    assert visibility.limit() == limit
    visibility.wait_for_slaves(Watermark(40))
    assert visibility.limit() == 40, "slaves have less"
    visibility.wait_for_slaves(Watermark(200))
    assert visibility.limit() == limit, "slaves have more"
    visibility.wait_for_slaves(None)
    assert visibility.limit() == limit


def test_the_unreplicated_tail_is_hidden_until_it_is_released() -> None:
    visibility = Visibility(FLUSH, is_async=False)
    short: Any = SimpleNamespace(key=(b"T", 0), max_offset=9)
    whole: Any = SimpleNamespace(key=(b"T", 1), max_offset=5)
    tail = UnreplicatedTail(50, 60, {(b"T", 0): 7}, frozenset())
    visibility.hide(tail)
    assert (visibility.end_of(short), visibility.end_of(whole)) == (7, 5)
    assert visibility.release() is tail
    assert (visibility.end_of(short), visibility.release()) == (9, None)
