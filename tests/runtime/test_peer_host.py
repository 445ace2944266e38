"""Addresses of peers."""

from __future__ import annotations

from broker_core.remoting.limits.request_budget import RequestBudget
from broker_core.runtime.peer_host import counted_host, is_loopback_host, peer_address
from tests.remoting.peers import small_limits


def test_ipv6_peers_are_counted_by_network() -> None:
    limits = small_limits(connections_per_ip_max=3)
    budget = RequestBudget(limits)
    admitted = [budget.admit(f"2001:db8:1:2::{number:x}") for number in range(1, 6)]
    assert [load is not None for load in admitted] == [True, True, True, False, False]
    assert budget.admit("2001:db8:1:3::1") is not None
    for load in admitted[:3]:
        assert load is not None
        budget.leave(load)
    assert budget.admit("2001:db8:1:2:ffff::9") is not None
    # This machine and IPv4 as ever.
    assert all(budget.admit("::1") is not None for _ in range(10))
    assert [budget.admit("10.0.0.1") is not None for _ in range(4)] == [True, True, True, False]
    assert counted_host("::ffff:10.0.0.1".removeprefix("::ffff:")) == "10.0.0.1"
    assert counted_host("local") == "local"


def test_loopback() -> None:
    assert is_loopback_host("127.0.0.1")
    assert is_loopback_host("::1")
    assert is_loopback_host("local")
    assert not is_loopback_host("10.0.0.1")
    assert not is_loopback_host("2001:db8:1:2::/64")


def test_ipv4_peers_of_an_ipv6_socket_keep_their_form() -> None:
    assert peer_address(("::ffff:10.0.0.9", 5, 0, 0)) == ("10.0.0.9", 5)
    assert peer_address(("fe80::1%eth0", 5, 0, 2)) == ("fe80::1", 5)
    assert peer_address("") == ("local", 0)
