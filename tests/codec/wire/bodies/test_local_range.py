"""The answer to LOCAL_RANGE."""

from __future__ import annotations

import pytest

from broker_core.codec.wire.bodies.local_range import (
    LocalRange,
    local_range_fields,
    parse_local_range,
)
from broker_core.errors import InvalidArgument


def test_an_answer_that_makes_no_sense() -> None:
    good = {
        "directory": "/d", "storeId": "s", "epoch": "1", "bootId": "b", "segmentSize": "1024",
        "queueFileSize": "6000", "checkLevel": "2", "logStart": "0", "minOffset": "3",
        "maxOffset": "9",
    }  # fmt: skip
    parsed = parse_local_range(good)
    assert isinstance(parsed, LocalRange)
    assert local_range_fields(parsed) == good
    for name, bad in (
        ("directory", ""), ("epoch", "x"), ("segmentSize", "0"), ("checkLevel", "0"),
        ("maxOffset", "-1"), ("queueFileSize", str(1 << 60)),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            parse_local_range({**good, name: bad})
