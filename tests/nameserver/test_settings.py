"""Settings of a name server as properties."""

from __future__ import annotations

import pytest

from broker_core.errors import InvalidArgument
from broker_core.nameserver.settings import (
    PROPERTIES_SIZE_MAX,
    NameServerSettings,
    parse_properties,
)


def test_a_change_makes_a_new_record() -> None:
    before = NameServerSettings()
    after = before.updated({"orderMessageEnable": "TRUE"})
    assert (before.order_message_enable, after.order_message_enable) == (False, True)
    assert parse_properties(after.as_properties())["orderMessageEnable"] == "true"


def test_only_listed_keys_may_change() -> None:
    changes = {"orderMessageEnable": "true", "kvConfigPath": "x", "listenPort": "1"}
    assert NameServerSettings().refused_keys(changes) == ("kvConfigPath", "listenPort")


def test_a_value_that_is_no_flag() -> None:
    with pytest.raises(InvalidArgument, match="orderMessageEnable is 'yes': give true or false"):
        NameServerSettings().updated({"orderMessageEnable": "yes"})


def test_properties() -> None:
    body = b"# comment\n! another\n\n a = b=c \nd=\n"
    assert parse_properties(body) == {"a": "b=c", "d": ""}


@pytest.mark.parametrize("body", [b"no sign", b"\xff=1", b"a=" + b"x" * PROPERTIES_SIZE_MAX])
def test_properties_that_are_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        parse_properties(body)
