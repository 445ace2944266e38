"""Client message ids."""

from __future__ import annotations

import os
import time

from broker_core.client.produce.unique_ids import UniqueIds

NOW_MS = 1_700_000_000_000


def test_the_layout_is_rocketmqs() -> None:
    raw = bytes.fromhex(UniqueIds("10.0.0.2").next(NOW_MS))
    assert len(raw) == 16
    assert raw[:4] == bytes((10, 0, 0, 2))
    assert raw[4:6] == (os.getpid() & 0xFFFF).to_bytes(2, "big")
    start = time.mktime((2023, 11, 1, 0, 0, 0, 0, 0, -1))
    assert int.from_bytes(raw[10:14], "big") == NOW_MS - int(start) * 1000


def test_ids_differ_within_a_millisecond_and_between_producers() -> None:
    ids, others = UniqueIds(), UniqueIds()
    made = {ids.next(NOW_MS) for _ in range(65_536)}
    assert len(made) == 65_536
    assert others.next(NOW_MS) not in made
    assert all(one == one.upper() and len(one) == 32 for one in list(made)[:10])


def test_months_turn_and_clocks_step_back() -> None:
    ids = UniqueIds("10.0.0.2")
    year_end = int(time.mktime((2023, 12, 31, 23, 59, 59, 0, 0, -1))) * 1000
    late = int.from_bytes(bytes.fromhex(ids.next(year_end))[10:14], "big")
    new = int.from_bytes(bytes.fromhex(ids.next(year_end + 1_000))[10:14], "big")
    again = int.from_bytes(bytes.fromhex(ids.next(year_end))[10:14], "big")
    assert (late, new, again) == (31 * 86_400_000 - 1_000, 0, late)
