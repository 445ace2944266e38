"""The fields of sends, with either kind of names."""

from __future__ import annotations

import pytest

from broker_core.codec.wire.send_request import (
    LONG_NAMES,
    SHORT_NAMES,
    SendRequest,
    parse_send_request,
    send_request_fields,
)
from broker_core.errors import InvalidArgument

FULL = SendRequest("g", "T", "TBW102", 8, 3, 2, 1_700_000_000_000, -7, "a\x01b", 4, True, 16, True)
LEAST = SendRequest("g", "T", "TBW102", 4, 0, 0, 0, 0)


@pytest.mark.parametrize("request_", [FULL, LEAST])
def test_round_trip(request_: SendRequest) -> None:
    fields = send_request_fields(request_)
    assert parse_send_request(fields, SHORT_NAMES) == request_
    long = {LONG_NAMES[SHORT_NAMES.index(name)]: value for name, value in fields.items()}
    assert parse_send_request(long, LONG_NAMES) == request_


def test_fields_that_may_be_absent() -> None:
    fields = dict.fromkeys("efgh", "0") | {"a": "g", "b": "T"}
    found = parse_send_request(fields, SHORT_NAMES)
    assert (found.default_queue_count, found.reconsume_times_max) == (4, None)
    assert not found.is_batch


@pytest.mark.parametrize("name", list("abefgh"))
def test_fields_that_may_not(name: str) -> None:
    fields = send_request_fields(FULL)
    del fields[name]
    with pytest.raises(InvalidArgument, match=f"field {name} is missing"):
        parse_send_request(fields, SHORT_NAMES)


@pytest.mark.parametrize("value", ["", "x", str(1 << 31), "1.5"])
def test_numbers_are_checked(value: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_send_request({**send_request_fields(FULL), "e": value}, SHORT_NAMES)
