"""A port stays with its embedded server while the server is away."""

from __future__ import annotations

import errno
import socket
import struct
import sys
from typing import Any

import pytest

from broker_core import EmbeddedBroker
from broker_core.embedded.held_ports import HeldPorts
from broker_core.embedded.standalone_server import HOST
from broker_core.errors import InvalidArgument
from broker_core.remoting.server import bind_address

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="held on Linux only")

# Of Linux 6.3: from which ports the system chooses for a socket.
IP_LOCAL_PORT_RANGE = 51


@pytest.mark.parametrize("port", [-1, 65_536, "9876", None, True, 80.0])
def test_what_is_no_port(port: Any) -> None:
    for name in ("name_server_port", "broker_port"):
        with pytest.raises(InvalidArgument) as refused:
            EmbeddedBroker(**{name: port})
        assert str(refused.value) == (
            f"{name}={port!r} is not a port: give 0, for any free one, to 65535"
        )


def is_given_away(port: int) -> bool:
    """Whether a request for any free port may return this one."""
    with socket.socket() as asking:
        try:
            only = struct.pack("I", port | port << 16)
            asking.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only)
        except OSError:
            pytest.skip("the system cannot be asked for one port only")
        try:
            asking.bind((HOST, 0))
        except OSError as error:
            assert error.errno == errno.EADDRINUSE
            return False
        return True


def test_a_held_port_can_be_bound_only_by_naming_it() -> None:
    ports = HeldPorts()
    first, second = ports.hold(), ports.hold()
    assert first != second
    assert ports.hold(first) == first
    for _ in range(2):
        with bind_address(HOST, first) as server:
            server.listen()
            with socket.create_connection((HOST, first)):
                assert not is_given_away(first)
        assert not is_given_away(first)
    ports.release()
    ports.release()
    assert is_given_away(second)


def test_a_port_in_use_is_not_held() -> None:
    ports = HeldPorts()
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        assert ports.hold(port) == port
    assert is_given_away(port)


def test_the_ports_of_a_killed_broker() -> None:
    with EmbeddedBroker() as broker:
        before = broker.name_server, broker.address
        numbers = [int(address.rpartition(":")[2]) for address in before]
        broker.kill()
        assert not any(map(is_given_away, numbers))
        broker.start()
        assert (broker.name_server, broker.address) == before
