"""File descriptors in reserve."""

from __future__ import annotations

import resource

from broker_core.runtime.descriptors import WANTED, is_in_reserve, reserve_of


def test_the_reserve_depends_on_the_limit() -> None:
    assert [reserve_of(soft) for soft in (64, 256, 1_024, 65_536, 1 << 20)] == [
        32, 64, 128, 4_096, 4_096,
    ]  # fmt: skip
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft != resource.RLIM_INFINITY:
        assert is_in_reserve(soft - 1) and not is_in_reserve(soft // 4)
    assert WANTED > 16_384
