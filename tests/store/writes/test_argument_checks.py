"""Arguments of the wrong type or size."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.errors import InvalidArgument
from broker_core.store.writes.argument_checks import check_integer, check_numbers, encoded_text


def test_texts() -> None:
    assert encoded_text("topic", "Ä") == "Ä".encode()
    assert encoded_text("topic", "\ud800") != encoded_text("topic", "?")
    with pytest.raises(InvalidArgument, match="topic must be str, not b'T'"):
        encoded_text("topic", b"T")


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_what_is_no_integer(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="offset must be int"):
        check_integer("offset", value)


def test_ranges() -> None:
    check_numbers(offset=0, count=(1 << 63) - 1)
    check_integer("offset", -5)
    for value in (-1, 1 << 63):
        with pytest.raises(InvalidArgument, match=f"count={value} is out of range"):
            check_numbers(offset=0, count=value)
