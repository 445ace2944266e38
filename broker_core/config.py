"""Frozen configuration records: the store's, built once from keyword arguments or Apache property
names, and the limits of remoting.

Field names are ours, with units; `PROPERTY_NAMES` maps RocketMQ's `broker.conf` keys to them. A bad
value fails here, naming the key, so that no other code checks again.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from broker_core.codec.records.record_layout import UNIT_SIZE
from broker_core.errors import InvalidConfig
from broker_core.protocol_codes import BrokerRole, FlushDiskType

PAGE_SIZE = 4096
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
_AMOUNT = re.compile(r"[0-9]{1,9}")
_HOUR = re.compile(r"[0-9]{1,2}")
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclasses.dataclass(frozen=True, slots=True)
class StoreConfig:
    """Every setting of one store. The defaults are RocketMQ's except `flush_disk_type`."""

    # Files
    commit_log_file_size: int = 1 << 30
    consume_queue_file_size: int = 300_000 * UNIT_SIZE
    index_hash_slots: int = 5_000_000
    index_entries_max: int = 20_000_000
    message_index_enable: bool = True
    # RocketMQ 5.5 also indexes `topic#T#tags`; 4.9 does not. Only file bytes differ for readers.
    index_tags: bool = False
    # Messages
    message_size_max: int = 4 << 20
    append_record_crc: bool = True
    store_host: str = "127.0.0.1"
    store_port: int = 10911
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    message_delay_level: str = DELAY_LEVELS
    # Flush
    flush_disk_type: FlushDiskType = FlushDiskType.SYNC_FLUSH
    sync_flush_timeout_ms: int = 5_000
    flush_interval_ms: int = 500
    flush_timed: bool = True
    flush_least_pages: int = 4
    flush_thorough_interval_ms: int = 10_000
    transient_pool_enable: bool = False
    transient_pool_size: int = 5
    transient_pool_fail_fast: bool = False
    commit_interval_ms: int = 200
    commit_least_pages: int = 4
    commit_thorough_interval_ms: int = 200
    watermark_sync_interval_ms: int = 200
    page_cache_busy_timeout_ms: int = 1_000
    warm_files: bool = False
    # Dispatch
    consume_queue_flush_interval_ms: int = 1_000
    consume_queue_flush_least_pages: int = 2
    dispatch_checkpoint_interval_ms: int = 10_000
    dispatch_slice_size: int = 8 << 20
    # Reads
    hot_window_size: int = 256 << 20
    read_count_max: int = 32
    read_size_max: int = 256 << 10
    visited_units_max: int = 800
    index_query_max: int = 64
    # Append groups and staging
    group_size_max: int = 4 << 30
    # May be False only with ASYNC_FLUSH.
    group_waits_for_disk: bool = True
    staging_size_max: int = 8 << 30
    staging_expiry_ms: int = 3_600_000
    # Retention
    file_reserved_hours: int = 72
    delete_when: str = "04"
    clean_interval_ms: int = 10_000
    delete_files_per_round: int = 10
    disk_used_ratio_max: int = 75
    disk_forcible_ratio: int = 85
    disk_warning_ratio: int = 90
    clean_forcibly_enable: bool = True

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_type(field.name, getattr(self, field.name), type(field.default))
        self._check_sizes()
        self._check_host()
        if not self.group_waits_for_disk and self.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            accepted = "true, because flushDiskType is SYNC_FLUSH"
            raise InvalidConfig("group_waits_for_disk", False, accepted)
        delay_levels_ms(self.message_delay_level)
        delete_hours(self.delete_when)

    @staticmethod
    def _check_type(name: str, value: object, wanted: type) -> None:
        # bool is an int in Python; a flag for a number is refused.
        if type(value) is not wanted:
            raise InvalidConfig(name, value, f"give a value of type {wanted.__name__}")

    def _check_sizes(self) -> None:
        at_least = {
            "commit_log_file_size": 1024,
            "consume_queue_file_size": UNIT_SIZE,
            "index_hash_slots": 1,
            "index_entries_max": 2,
            "message_size_max": 1,
            "transient_pool_size": 1,
            "dispatch_slice_size": 1024,
            "read_count_max": 1,
            "delete_files_per_round": 1,
            "flush_interval_ms": 1,
            "commit_interval_ms": 1,
            "clean_interval_ms": 1,
            "consume_queue_flush_interval_ms": 1,
            "dispatch_checkpoint_interval_ms": 1,
        }
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not isinstance(value, bool):
                least = at_least.get(field.name, 0)
                if value < least:
                    raise InvalidConfig(field.name, value, f"give a number of at least {least}")
        if self.consume_queue_file_size % UNIT_SIZE:
            raise InvalidConfig(
                "consume_queue_file_size", self.consume_queue_file_size, "a multiple of 20"
            )
        if self.commit_log_file_size > 1 << 31:
            raise InvalidConfig(
                "commit_log_file_size", self.commit_log_file_size, "at most 2147483648"
            )
        for name in ("disk_used_ratio_max", "disk_forcible_ratio", "disk_warning_ratio"):
            if not 1 <= getattr(self, name) <= 100:
                raise InvalidConfig(name, getattr(self, name), "a percentage from 1 to 100")
        if self.transient_pool_fail_fast and self.transient_pool_size < 2:
            raise InvalidConfig(
                "transient_pool_size",
                self.transient_pool_size,
                "at least 2 with transient_pool_fail_fast: a full file keeps its buffer until the "
                "next one begins",
            )

    def _check_host(self) -> None:
        if not 0 <= self.store_port <= 65_535:
            raise InvalidConfig("store_port", self.store_port, "a port from 0 to 65535")
        try:
            ipaddress.ip_address(self.store_host)
        except ValueError:
            raise InvalidConfig("store_host", self.store_host, "a numeric IP address") from None

    @property
    def record_size_max(self) -> int:
        """The largest size of a whole record: its body and every other field."""
        return min(self.message_size_max + (64 << 10), self.commit_log_file_size - 8)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> tuple[StoreConfig, tuple[str, ...]]:
        """Read `broker.conf` keys; also return the keys that are not settings of the store."""
        pairs: Any = properties
        if not isinstance(pairs, Mapping):
            raise InvalidConfig("properties", pairs, "give a mapping of names to strings")
        kinds = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        given: dict[str, tuple[str, str]] = {}
        unknown = []
        for key, text in pairs.items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise InvalidConfig(str(key), text, "names and values must be strings")
            name = PROPERTY_NAMES.get(key)
            if name is None:
                unknown.append(key)
            else:
                values[name] = parse_setting(key, text.strip(), kinds[name])
                given[name] = (key, text)
        try:
            return cls(**values), tuple(unknown)
        except InvalidConfig as error:
            # Name the key that the operator wrote, not the field.
            key, text = given.get(error.key, (error.key, str(error.value)))
            raise InvalidConfig(key, text, error.accepted) from None


@dataclasses.dataclass(frozen=True, slots=True)
class RemotingLimits:
    """Limits on what one peer, one host and all peers together may use of a server or a client."""

    frame_size_max: int = 16 << 20
    header_size_max: int = 64 << 10
    # Connections; those from this machine do not count towards their host.
    connections_max: int = 16_384
    connections_per_ip_max: int = 256
    partial_frame_timeout_ms: int = 30_000
    idle_timeout_ms: int = 120_000
    write_stall_timeout_ms: int = 60_000
    sweep_interval_ms: int = 1_000
    # Answers that the peer has not taken: above the first, its requests wait; above the second, its
    # connection is closed.
    write_buffer_high: int = 1 << 20
    write_buffer_max: int = 64 << 20
    # Requests received and not yet answered. Bytes over a limit make the peer wait, a count over a
    # limit is answered SYSTEM_BUSY.
    connection_in_flight_size_max: int = 32 << 20
    ip_in_flight_size_max: int = 128 << 20
    in_flight_size_max: int = 512 << 20
    # Peers that have not shown an account yet, where accounts are needed: what each may send
    # freely, and what all of them together may have beyond that.
    unauthenticated_frame_size_max: int = 16 << 10
    unauthenticated_size_max: int = 64 << 20
    connection_requests_max: int = 16_384
    requests_max: int = 100_000
    # Requests that wait for a message, which are counted apart. A connection, an address and an
    # account may each hold as many as are left free.
    held_requests_max: int = 200_000
    held_size_max: int = 512 << 20
    # Connections that a client opens
    connect_timeout_ms: int = 3_000
    reconnect_delay_min_ms: int = 100
    reconnect_delay_max_ms: int = 2_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise InvalidConfig(field.name, value, "give a whole number of at least 1")
        if not self.header_size_max + 8 <= self.frame_size_max <= 1 << 30:
            accepted = f"from header_size_max + 8 ({self.header_size_max + 8}) to {1 << 30}"
            raise InvalidConfig("frame_size_max", self.frame_size_max, accepted)
        for name in (
            "write_buffer_max",
            "ip_in_flight_size_max",
            "in_flight_size_max",
            "unauthenticated_size_max",
        ):
            # A limit below one frame would let a single legal request wait forever.
            if getattr(self, name) < 2 * self.frame_size_max:
                accepted = f"at least two frames ({2 * self.frame_size_max})"
                raise InvalidConfig(name, getattr(self, name), accepted)


def parse_setting(key: str, text: str, kind: type) -> object:
    """The value of a property's text; `kind` is the type of the field's default."""
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InvalidConfig(key, text, "true or false")
        return text.lower() == "true"
    if kind is int:
        if not _WHOLE_NUMBER.fullmatch(text):
            raise InvalidConfig(key, text, "a whole number of at most 18 digits")
        return int(text)
    if kind in (FlushDiskType, BrokerRole):
        if text not in kind.__members__:
            accepted = ", ".join(kind.__members__)
            raise InvalidConfig(key, text, f"one of {accepted}")
        return kind(text)
    return text


def delay_levels_ms(text: str) -> tuple[int, ...]:
    """`"1s 5s 2h"` as milliseconds, level 1 first."""
    scale = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    levels = []
    for part in text.split():
        if part[-1] not in scale or not _AMOUNT.fullmatch(part[:-1]):
            raise InvalidConfig(
                "message_delay_level", text, f"{part!r:.40} is not like 1s, 5m, 2h, 1d"
            )
        levels.append(int(part[:-1]) * scale[part[-1]])
    return tuple(levels)


def delete_hours(text: str) -> frozenset[int]:
    """`"04;16"` as hours of the local day."""
    hours = set()
    for part in text.split(";"):
        if not _HOUR.fullmatch(part.strip()) or int(part) > 23:
            raise InvalidConfig("delete_when", text, "hours 00 to 23 separated by ;")
        hours.add(int(part))
    return frozenset(hours)


PROPERTY_NAMES: Mapping[str, str] = {
    "mappedFileSizeCommitLog": "commit_log_file_size",
    "mappedFileSizeConsumeQueue": "consume_queue_file_size",
    "maxHashSlotNum": "index_hash_slots",
    "maxIndexNum": "index_entries_max",
    "messageIndexEnable": "message_index_enable",
    "maxMessageSize": "message_size_max",
    "enabledAppendPropCRC": "append_record_crc",
    "brokerIP1": "store_host",
    "listenPort": "store_port",
    "brokerRole": "broker_role",
    "messageDelayLevel": "message_delay_level",
    "flushDiskType": "flush_disk_type",
    "syncFlushTimeout": "sync_flush_timeout_ms",
    "flushIntervalCommitLog": "flush_interval_ms",
    "flushCommitLogTimed": "flush_timed",
    "flushCommitLogLeastPages": "flush_least_pages",
    "flushCommitLogThoroughInterval": "flush_thorough_interval_ms",
    "transientStorePoolEnable": "transient_pool_enable",
    "transientStorePoolSize": "transient_pool_size",
    "fastFailIfNoBufferInStorePool": "transient_pool_fail_fast",
    "commitIntervalCommitLog": "commit_interval_ms",
    "commitCommitLogLeastPages": "commit_least_pages",
    "commitCommitLogThoroughInterval": "commit_thorough_interval_ms",
    "osPageCacheBusyTimeOutMills": "page_cache_busy_timeout_ms",
    "warmMapedFileEnable": "warm_files",
    "flushIntervalConsumeQueue": "consume_queue_flush_interval_ms",
    "flushConsumeQueueLeastPages": "consume_queue_flush_least_pages",
    "flushConsumeQueueThoroughInterval": "dispatch_checkpoint_interval_ms",
    "maxTransferCountOnMessageInMemory": "read_count_max",
    "maxTransferBytesOnMessageInMemory": "read_size_max",
    "maxMsgsNumBatch": "index_query_max",
    "fileReservedTime": "file_reserved_hours",
    "deleteWhen": "delete_when",
    "cleanResourceInterval": "clean_interval_ms",
    "deleteFileBatchMax": "delete_files_per_round",
    "diskMaxUsedSpaceRatio": "disk_used_ratio_max",
    "diskSpaceCleanForciblyRatio": "disk_forcible_ratio",
    "diskSpaceWarningLevelRatio": "disk_warning_ratio",
    "cleanFileForciblyEnable": "clean_forcibly_enable",
    # Ours
    "sinkBatchSizeMax": "group_size_max",
    "sinkWaitForDisk": "group_waits_for_disk",
    "sinkStagingSizeMax": "staging_size_max",
    "sinkStagingExpiryMs": "staging_expiry_ms",
}
