"""Settings of a client: what is accepted, and what the refusals say."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.client.connection.config import ClientConfig, local_ip, parse_name_servers
from broker_core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a:1", ("a:1",)),
        ("a:1;b:2", ("a:1", "b:2")),
        (" a:1 , b:2 ;", ("a:1", "b:2")),
        ("[::1]:9876", ("[::1]:9876",)),
        (["a:1", "a:1"], ("a:1",)),
    ],
)
def test_name_servers_in_every_form(given: Any, expected: tuple[str, ...]) -> None:
    assert parse_name_servers(given) == expected
    assert ClientConfig(given).name_servers == expected


@pytest.mark.parametrize("given", ["", ";", (), "host", "host:", "host:x", "host:99999", ":1"])
def test_bad_name_servers_are_named(given: Any) -> None:
    with pytest.raises(InvalidConfig, match="name_servers"):
        ClientConfig(given)


def test_addresses_are_rewritten_by_text_or_table() -> None:
    text = ClientConfig("a:1", address_rewrite="172.17.0.2:10911=127.0.0.1:10911, b:2=c:3")  # type: ignore[arg-type]
    table = ClientConfig(("a:1",), address_rewrite={"172.17.0.2:10911": "127.0.0.1:10911"})
    assert text.address_rewrite["b:2"] == "c:3"
    assert table.address_rewrite == {"172.17.0.2:10911": "127.0.0.1:10911"}
    with pytest.raises(TypeError):
        table.address_rewrite["x:1"] = "y:1"  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("address_rewrite", "a:1"),
        ("address_rewrite", {"a:1": "b"}),
        ("client_id", "with\nnewline"),
        ("client_id", "x" * 256),
        ("request_timeout_ms", 0),
        ("heartbeat_interval_ms", 1.5),
        ("body_size_max", 16 << 20),
        ("compress_from_size", -1),
        ("compression_level", 10),
        ("decompressed_size_max", True),
    ],
)
def test_bad_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidConfig, match=name):
        ClientConfig(("a:1",), **{name: value})


def test_client_ids_tell_where_and_differ() -> None:
    first, second = ClientConfig(("a:1",)), ClientConfig(("a:1",))
    assert first.client_id != second.client_id
    assert first.client_id.startswith(f"{local_ip()}@")
    assert ClientConfig(("a:1",), client_id="mine").client_id == "mine"
