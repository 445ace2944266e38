"""Response to LOCAL_RANGE: the files that a reader on the same host may read, and their limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker_core.codec.json.fields import I64_MAX, whole_number
from broker_core.codec.records.record_layout import CHECK_CHECKSUMS, REQUIRE_CHECKSUM
from broker_core.errors import InvalidArgument

_FILE_SIZE_MAX: Final = 1 << 40


class StoreLayout(NamedTuple):
    """Identity and format of a store; constant during an epoch."""

    directory: str
    store_id: str
    epoch: int
    boot_id: str
    """Boot id of the machine on which the store's owner runs."""
    segment_size: int
    queue_file_size: int
    check_level: int
    """How records are to be verified, see `record_layout`."""


class LocalRange(NamedTuple):
    """One queue at one moment; everything below `max_offset` is visible and in the files."""

    layout: StoreLayout
    log_start: int
    """Files below this position may have been deleted."""
    min_offset: int
    max_offset: int


def local_range_fields(found: LocalRange) -> dict[str, str]:
    """The header fields of the response."""
    layout = found.layout
    return {
        "directory": layout.directory,
        "storeId": layout.store_id,
        "epoch": str(layout.epoch),
        "bootId": layout.boot_id,
        "segmentSize": str(layout.segment_size),
        "queueFileSize": str(layout.queue_file_size),
        "checkLevel": str(layout.check_level),
        "logStart": str(found.log_start),
        "minOffset": str(found.min_offset),
        "maxOffset": str(found.max_offset),
    }


def parse_local_range(ext: Mapping[str, str]) -> LocalRange:
    """The inverse of `local_range_fields`; raises `InvalidArgument`."""

    def number(name: str, least: int = 0, most: int = I64_MAX) -> int:
        return whole_number(ext.get(name, ""), name, least, most)

    if not ext.get("directory"):
        raise InvalidArgument("the answer to LOCAL_RANGE has no directory")
    layout = StoreLayout(
        ext["directory"],
        ext.get("storeId", ""),
        number("epoch"),
        ext.get("bootId", ""),
        number("segmentSize", 1, _FILE_SIZE_MAX),
        number("queueFileSize", 1, _FILE_SIZE_MAX),
        number("checkLevel", CHECK_CHECKSUMS, REQUIRE_CHECKSUM),
    )
    return LocalRange(layout, number("logStart"), number("minOffset"), number("maxOffset"))
