"""Option values, and errors in one line."""

from __future__ import annotations

import argparse

import pytest

from broker_core.cli import command_parser as types
from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.servers.namesrv import is_loopback


@pytest.mark.parametrize("text", ["127.0.0.1:9876", "host-1.example:0", "[::1]:9876", "_a:65535"])
def test_addresses(text: str) -> None:
    assert types.address(f" {text} ") == text


@pytest.mark.parametrize("text", ["", "host", ":1", "a:", "a:65536", "a b:1", "::1:9876", "a:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not HOST:PORT"):
        types.address(text)


def test_address_lists() -> None:
    assert types.address_list("a:1;b:2, c:3;") == ("a:1", "b:2", "c:3")
    with pytest.raises(argparse.ArgumentTypeError):
        types.address_list(";")
    with pytest.raises(argparse.ArgumentTypeError):
        types.address_list("a:1;b")


@pytest.mark.parametrize(("text", "parts"), [("[::1]:5", ("::1", 5)), ("a.b:0", ("a.b", 0))])
def test_an_address_is_split_and_shown(text: str, parts: tuple[str, int]) -> None:
    assert types.host_and_port(text) == parts
    assert types.shown_address(*parts) == text


def test_keys_and_values() -> None:
    assert types.key_and_value("a=b=c") == ("a", "b=c")
    assert types.key_and_value("a=") == ("a", "")
    for text in ("a", "=b", " =b"):
        with pytest.raises(argparse.ArgumentTypeError, match="is not KEY=VALUE"):
            types.key_and_value(text)


def test_numbers() -> None:
    assert types.count("12") == 12
    assert types.port("0") == 0
    for text in ("0", "-1", "x", "", "1.5", "٣", "9" * 30):
        with pytest.raises(argparse.ArgumentTypeError):
            types.count(text)
    for text in ("65536", "-1", "x"):
        with pytest.raises(argparse.ArgumentTypeError):
            types.port(text)


def test_name_servers_come_from_option_environment_or_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(types.NAME_SERVER_VARIABLE, raising=False)
    assert types.name_servers(()) == (types.NAME_SERVER_DEFAULT,)
    monkeypatch.setenv(types.NAME_SERVER_VARIABLE, "a:1;b:2")
    assert types.name_servers(()) == ("a:1", "b:2")
    assert types.name_servers(("c:3",)) == ("c:3",)
    monkeypatch.setenv(types.NAME_SERVER_VARIABLE, "nonsense")
    with pytest.raises(CommandFailed, match="NAMESRV_ADDR"):
        types.name_servers(())


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_what_only_this_machine_can_reach(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local
