"""Addresses of clients: as records store them, and whether they are on this host."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.broker.client_address import born_host, is_loopback
from broker_core.codec.records.host_address import decode_host


class _Peer:
    def __init__(self, host: str, port: int = 1) -> None:
        self.peer = (host, port)
        self.attributes: dict[str, Any] = {}


def _peer(host: str, port: int = 1) -> Any:
    return _Peer(host, port)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1"])
def test_loopback_addresses_are_on_this_host(host: str) -> None:
    assert is_loopback(_peer(host))


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "0.0.0.0", "::", "fe80::1%eth0", "", "localhost.example"]
)
def test_other_addresses_are_not_on_this_host(host: str) -> None:
    assert not is_loopback(_peer(host))


def test_the_stored_address_is_encoded_once_per_connection() -> None:
    peer = _peer("10.1.2.3", 4567)
    first = born_host(peer)
    assert decode_host(first) == ("10.1.2.3", 4567)
    assert born_host(peer) is first
    assert decode_host(born_host(_peer("local"))) == ("127.0.0.1", 0)
