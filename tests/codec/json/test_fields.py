"""Typed reads: the asked kind, the default, or a refusal that names the field and stays short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.codec.json.fields import (
    flag_field,
    is_deeper,
    list_field,
    object_field,
    text_field,
    whole_field,
    whole_number,
)
from broker_core.errors import InvalidArgument


def test_values_of_the_right_kind_come_back() -> None:
    found = {"t": "x", "w": 7, "f": True, "o": {"a": 1}, "l": [1]}
    assert text_field(found, "t") == "x"
    assert whole_field(found, "w", None, 0, 7) == 7
    assert flag_field(found, "f") is True
    assert object_field(found, "o") == {"a": 1}
    assert list_field(found, "l") == [1]


@pytest.mark.parametrize("found", [{}, {"x": None}])
def test_absent_and_null_give_the_default_or_are_refused(found: dict[str, Any]) -> None:
    assert text_field(found, "x", "d") == "d"
    assert whole_field(found, "x", 3) == 3
    assert flag_field(found, "x", False) is False
    assert object_field(found, "x") == {}
    assert list_field(found, "x") == ()
    for read in (text_field, whole_field, flag_field):
        with pytest.raises(InvalidArgument, match="x is missing"):
            read(found, "x")


@pytest.mark.parametrize(
    ("read", "values"),
    [
        (text_field, [1, True, [], {}]),
        (whole_field, ["1", 1.0, True, 1 << 63, 10**5_000, []]),
        (flag_field, ["true", 1, 0]),
        (object_field, [[], "x", 1, {("a", 1): 2}]),
        (list_field, [{}, "x", 1, ()]),
    ],
)
def test_other_kinds_are_refused_by_name(read: Callable[..., Any], values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidArgument, match="field-name") as refused:
            read({"field-name": value}, "field-name")
        assert len(str(refused.value)) < 300


def test_a_long_value_is_not_quoted_whole() -> None:
    with pytest.raises(InvalidArgument) as refused:
        whole_field({"x": "y" * 1_000_000}, "x")
    assert len(str(refused.value)) < 300


def test_numbers_in_texts() -> None:
    assert whole_number("-12", "n") == -12
    assert whole_number("9223372036854775807", "n") == (1 << 63) - 1
    for text in ("", " 1", "1 ", "+1", "1.0", "0x1", "٣", "9223372036854775808", "9" * 5_000):
        with pytest.raises(InvalidArgument, match="n is"):
            whole_number(text, "n")
    with pytest.raises(InvalidArgument):
        whole_number("5", "n", 6, 7)


def test_depth_counts_objects_and_arrays() -> None:
    assert not is_deeper({"a": [1, {"b": "c"}]}, 3)
    assert is_deeper({"a": [1, {"b": "c"}]}, 2)
    assert is_deeper([], 0)
    assert not is_deeper("text", 0)
