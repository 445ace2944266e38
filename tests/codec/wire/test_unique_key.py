"""Message ids that the broker makes."""

from __future__ import annotations

from broker_core.codec.wire.unique_key import UniqueKeys


def test_the_parts_of_an_id() -> None:
    key = UniqueKeys(bytes([10, 0, 0, 1]), 0x1_2345, 0xCAFE).next(0x0102_0304)
    assert key == "0A000001" + "2345" + "0000CAFE" + "01020304" + "0001"
    assert len(UniqueKeys(bytes(16), 1, 2).next(0)) == 56


def test_ids_of_one_moment_differ() -> None:
    keys = UniqueKeys(bytes(4), 1, 2)
    assert len({keys.next(5) for _ in range(0x1_0000)}) == 0x1_0000
