"""R03 (RocketMQ #7437): the checksum covered the body only.

Recovery accepted a record whose last sectors, with the properties, had not reached the disk.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.regress.small_disk_store import (
    ASYNC,
    TOPIC,
    new_disk,
    numbered,
    numbers_in,
    open_store,
    reboots,
    small_config,
)

LONG = {"trace": "y" * 1_100}


def _scenario(**changes: Any) -> None:
    config = small_config(**ASYNC, **changes)
    disk = new_disk()
    store = open_store(disk, config)
    store.append(numbered(0))
    store.flush()
    store.append(numbered(1, properties=LONG))
    store.append(numbered(2))
    lengths = set()
    for after in reboots(disk):
        recovered = open_store(after, config)
        found = numbers_in(recovered)
        assert found == list(range(len(found)))
        assert found, "what was durable is lost"
        lengths.add(len(found))
        for message in recovered.get(TOPIC, 0, 1, 1).messages():
            assert message.properties["trace"] == LONG["trace"], "half a record was accepted"
    assert {1, 3} <= lengths


def test_a_record_counts_only_as_a_whole() -> None:
    _scenario()


def test_the_scenario_finds_a_checksum_of_the_body_only() -> None:
    with pytest.raises(AssertionError, match="half a record"):
        _scenario(append_record_crc=False)
