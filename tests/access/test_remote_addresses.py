"""Patterns of peer addresses that need no account."""

from __future__ import annotations

import pytest

from broker_core.access.remote_addresses import address_pattern
from broker_core.errors import InvalidArgument


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("10.1.2.3", ["10.1.2.3"], ["10.1.2.30", "10.1.2", "::1", ""]),
        ("10.1.*.*", ["10.1.0.0", "10.1.255.255"], ["10.2.0.0", "10.1.256.1", "10.1.x.1"]),
        ("10.1.2.{3,40}", ["10.1.2.3", "10.1.2.40"], ["10.1.2.4"]),
        ("10.1.2-9.*", ["10.1.2.1", "10.1.9.9"], ["10.1.10.1", "10.1.1.1"]),
        ("192.168.0.0/16", ["192.168.3.4"], ["192.169.0.1", "local"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "127.0.0.1"]),
        ("2001:db8::/32", ["2001:db8::7"], ["2001:db9::7"]),
        ("*", ["1.2.3.4", "::1"], []),
    ],
)
def test_white_lists(pattern: str, matching: list[str], others: list[str]) -> None:
    matches = address_pattern(pattern)
    assert all(matches(host) for host in matching)
    assert not any(matches(host) for host in others)


@pytest.mark.parametrize(
    "text", ["", "10.1.2", "10.1.2.3.4", "10.1.2.a", "10.1.2.{}", "10.1.2.1-", "a:b"]
)
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(InvalidArgument):
        address_pattern(text)
