"""Fields of a request: typed, or refused by name."""

from __future__ import annotations

import pytest

from broker_core.broker.request_fields import (
    checked_group,
    checked_topic,
    optional_flag,
    optional_number,
    required_number,
    required_text,
)
from broker_core.errors import InvalidArgument

EXT = {"topic": "T", "empty": "", "number": "-7", "yes": "TRUE", "no": "false", "word": "x" * 9_999}


def test_what_is_there() -> None:
    assert required_text(EXT, "topic") == "T"
    assert required_number(EXT, "number") == -7
    assert optional_number(EXT, "number", 1) == -7
    assert optional_number(EXT, "empty", 1) == optional_number(EXT, "absent", 1) == 1
    assert optional_flag(EXT, "yes", False) is True
    assert optional_flag(EXT, "no", True) is False
    assert optional_flag(EXT, "empty", True) is optional_flag(EXT, "absent", True) is True
    assert (checked_topic("T"), checked_group("g")) == ("T", "g")


def test_what_is_not() -> None:
    for refused in (
        lambda: required_text(EXT, "empty"),
        lambda: required_text(EXT, "absent"),
        lambda: required_number(EXT, "topic"),
        lambda: required_number(EXT, "number", 0),
        lambda: optional_number(EXT, "word", 1),
        lambda: optional_flag(EXT, "topic", True),
        lambda: optional_flag(EXT, "word", True),
        lambda: checked_topic("../x"),
        lambda: checked_group("g" * 121),
    ):
        with pytest.raises(InvalidArgument) as error:
            refused()
        assert len(str(error.value)) < 200
