"""Typed reads of request fields: each returns the value or raises an error with the field name."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.codec.json.fields import I64_MAX, I64_MIN, whole_number
from broker_core.codec.wire.topic_name import group_name_problem, topic_name_problem
from broker_core.errors import InvalidArgument


def required_text(ext: Mapping[str, str], field: str) -> str:
    """A field that a request must carry."""
    value = ext.get(field)
    if not value:
        raise InvalidArgument(f"field {field} is missing")
    return value


def required_number(
    ext: Mapping[str, str], field: str, least: int = I64_MIN, most: int = I64_MAX
) -> int:
    """A whole number that a request must carry."""
    return whole_number(required_text(ext, field), field, least, most)


def optional_number(
    ext: Mapping[str, str], field: str, default: int, least: int = I64_MIN, most: int = I64_MAX
) -> int:
    """A whole number, or `default` when the field is absent or empty."""
    value = ext.get(field)
    return whole_number(value, field, least, most) if value else default


def optional_flag(ext: Mapping[str, str], field: str, default: bool) -> bool:
    """`true` or `false` in any case, or `default` when the field is absent or empty."""
    value = ext.get(field)
    if not value:
        return default
    lowered = value[:5].lower() if len(value) <= 5 else ""
    if lowered not in ("true", "false"):
        raise InvalidArgument(f"{field} is {value[:60]!r}: give true or false")
    return lowered == "true"


def checked_topic(name: str) -> str:
    """`name`, if it is a valid topic name; raises otherwise."""
    problem = topic_name_problem(name)
    if problem is not None:
        raise InvalidArgument(problem)
    return name


def checked_group(name: str) -> str:
    """`name`, if it is a valid group name; raises otherwise."""
    problem = group_name_problem(name)
    if problem is not None:
        raise InvalidArgument(problem)
    return name
