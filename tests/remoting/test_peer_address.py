"""Addresses of peers."""

from __future__ import annotations

from broker_core.remoting.peer_address import peer_address


def test_ipv4_peers_of_an_ipv6_socket_keep_their_form() -> None:
    class Transport:
        def __init__(self, name: object) -> None:
            self.name = name

        def get_extra_info(self, key: str) -> object:
            return self.name

    def peer(name: object) -> tuple[str, int]:
        return peer_address(Transport(name))  # type: ignore[arg-type]

    assert peer(("::ffff:10.0.0.9", 5, 0, 0)) == ("10.0.0.9", 5)
    assert peer(("fe80::1%eth0", 5, 0, 2)) == ("fe80::1", 5)
    assert peer("") == ("local", 0)
