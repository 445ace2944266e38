"""Both sides of an exchanged store in one form, so that tests compare them with `==`.

`our_listing` is for `MessageStore` what `JavaStore.dump` is for the real store, `theirs` spells a
Java row the way ours is spelled, and `Sender` fills a store while keeping its own account of what
was sent. Owns no store and no process.
"""

from __future__ import annotations

import ipaddress
import shutil
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from broker_core.codec.records.column_batch import Column, ColumnBatch
from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_properties import CRC32, encode_properties
from broker_core.codec.records.message_record import MessageRecord, decode_record
from broker_core.config import StoreConfig
from broker_core.protocol_codes import GetStatus
from broker_core.storage.staging.staging_area import encode_template
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from broker_core.store.writes.put_result import PutResult
from tests.fakes.manual_clock import ManualClock
from tests.interop.java_store import SMALL_LAYOUT, Listing, Row, StoreLayout

BORN_HOST_V6 = 0x10
STORE_HOST = ("127.0.0.1", 10911)
QueueKey = tuple[str, int]

# What a message has before any store has seen it.
SENT_FIELDS = (
    "topic", "queue_id", "queue_offset", "body", "properties", "flag", "sys_flag", "born_host",
    "born_timestamp_ms", "reconsume_times", "prepared_transaction_position",
)  # fmt: skip


def our_config(version: str, layout: StoreLayout = SMALL_LAYOUT) -> StoreConfig:
    """What makes our files comparable with those of a RocketMQ version."""
    return StoreConfig(
        commit_log_file_size=layout.log_file_size,
        consume_queue_file_size=layout.queue_file_size,
        index_hash_slots=layout.index_slot_count,
        index_entries_max=layout.index_entry_count_max,
        index_tags=version != "4.9.8",
        # A full disk of the test machine must not change results.
        clean_forcibly_enable=False,
        disk_used_ratio_max=100,
    )


def our_listing(store: MessageStore) -> Listing:
    """Every message of every queue, in the order of `JavaStore.dump`."""
    messages: list[Row] = []
    queues = []
    for topic, queue_id in store.queues():
        low, high = store.offsets(topic, queue_id)
        offset = low
        while offset < high:
            found = store.get(topic, queue_id, offset)
            assert found.status is GetStatus.FOUND, (topic, queue_id, offset, found)
            messages += _rows(found.records)
            offset = found.next_offset
        queues.append({"topic": topic, "queue_id": queue_id, "min_offset": low, "max_offset": high})
    return Listing(messages, queues, *store.log_range)


def ours(record: MessageRecord, record_size: int | None = None) -> Row:
    """One record as a row; a look-up by key does not know the size."""
    row = {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "position": record.physical_offset,
        "record_size": record_size,
        "message_id": record.message_id,
        "store_timestamp_ms": record.store_timestamp,
        "born_timestamp_ms": record.born_timestamp,
        "store_host": record.store_host,
        "born_host": record.born_host,
        "sys_flag": record.sys_flag,
        "flag": record.flag,
        "body_crc": zlib.crc32(record.body) & 0x7FFFFFFF,
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_position": record.prepared_transaction_offset,
        "body": record.body,
        "properties": record.properties,
    }
    if record_size is None:
        del row["record_size"]
    return row


def theirs(rows: Iterable[Row], *, with_size: bool = True) -> list[Row]:
    """Java rows in our spelling: numeric hosts, and no checksum property."""
    dropped = {"row"} if with_size else {"row", "record_size"}
    spelled = []
    for row in rows:
        assert "undecodable_size" not in row, row
        kept = {name: value for name, value in row.items() if name not in dropped}
        for name in ("born_host", "store_host"):
            address, _, port = row[name].rpartition(":")
            kept[name] = str(ipaddress.ip_address(address)), int(port)
        kept["properties"] = {k: v for k, v in row["properties"].items() if k != CRC32}
        spelled.append(kept)
    return spelled


def as_sent(rows: Iterable[Row]) -> list[Row]:
    """Only what the sender decided."""
    return [{name: row[name] for name in SENT_FIELDS} for row in rows]


def ranges(listing: Listing) -> list[tuple[str, int, int, int]]:
    """(topic, queue id, min, max) of every queue."""
    columns = ("topic", "queue_id", "min_offset", "max_offset")
    return [tuple(queue[column] for column in columns) for queue in listing.queues]


def assert_all_reached(listing: Listing) -> None:
    """A dump that got stuck below the max offset would hide messages."""
    stuck = [queue for queue in listing.queues if queue["reached_offset"] != queue["max_offset"]]
    assert not stuck


def derived_bytes(root: Path) -> tuple[dict[str, bytes], list[bytes]]:
    """Consume-queue files by name, and index files by age: theirs are named after the clock."""
    queues = root / "consumequeue"
    units = {
        path.relative_to(queues).as_posix(): path.read_bytes()
        for path in sorted(queues.rglob("*"))
        if path.is_file()
    }
    index = root / "index"
    files = sorted(index.iterdir()) if index.is_dir() else []
    return units, [path.read_bytes() for path in files]


def forget_derived(root: Path) -> None:
    """Leave the log and nothing else that tells what is in it."""
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("checkpoint", "dispatch_checkpoint", "store_state"):
        (root / name).unlink(missing_ok=True)


def column(values: Sequence[bytes]) -> Column:
    """Values as a batch column."""
    offsets = array("q", [0])
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return b"".join(values), offsets, 8


class Sender:
    """Puts messages of every kind and remembers, per queue, what must come back."""

    def __init__(self, store: MessageStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.sent: dict[QueueKey, list[Row]] = defaultdict(list)

    def put(self, message: Message) -> PutResult:
        """One message, 700 ms after the one before."""
        self.clock.advance(700)
        result = self._stored(self.store.append(message))
        host = message.born_host or STORE_HOST
        named = {"TAGS": message.tags, "KEYS": message.keys}
        self._account(
            (message.topic, message.queue_id),
            body=bytes(message.body),
            properties={**message.properties, **{k: v for k, v in named.items() if v}},
            flag=message.flag,
            sys_flag=message.sys_flag | (BORN_HOST_V6 if ":" in host[0] else 0),
            born_host=host,
            born_timestamp_ms=message.born_timestamp or self.clock.wall_ms(),
            reconsume_times=message.reconsume_times,
            prepared_transaction_position=message.prepared_transaction_offset,
        )
        return result

    def batch(self, queues: Sequence[QueueKey], rows: int, **kind: Any) -> PutResult:
        """A column batch over several queues in turn."""
        self.clock.advance(700)
        together = kind.pop("together", False)
        batch = self._columns(queues, rows, **kind)
        return self._stored(self.store.append_batch(batch, together=together))

    def group(self, queues: Sequence[QueueKey], rows: int, note: bytes) -> PutResult:
        """Two runs as one append group, which has a header record of its own."""
        self.clock.advance(700)
        first = encode_template(self._columns(queues, rows, mark="first run"))
        second = encode_template(self._columns(queues[::-1], rows // 2, mark="second run"))
        return self._stored(self.store.append_group([first, second], note))

    def by_queue(self, groups: list[Row]) -> list[Row]:
        """Everything sent in the order of a listing; header records of groups as given."""
        rows = groups + [row for sent in self.sent.values() for row in sent]
        return sorted(rows, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]))

    def with_key(self, topic: str, key: str) -> list[Row]:
        """What a look-up must find."""
        return [
            row
            for (sent_topic, _), rows in self.sent.items()
            if sent_topic == topic
            for row in rows
            if key in row["properties"].get("KEYS", "").split(" ")
            or key == row["properties"].get("UNIQ_KEY")
        ]

    def _columns(
        self, queues: Sequence[QueueKey], rows: int, mark: str = "", body_size: int = 40
    ) -> ColumnBatch:
        born_ms = [self.clock.wall_ms() - row for row in range(rows)]
        tags = [f"Tag{row % 3}" if row % 3 else "" for row in range(rows)]
        keys = [f"row{row} every{row % 50}" if row % 2 else "" for row in range(rows)]
        properties = [{"mark": mark, "UNIQ_KEY": f"{mark}-{row}"} for row in range(rows)]
        bodies = [b"%06d" % row * (row % (body_size // 6 + 1)) for row in range(rows)]
        for row in range(rows):
            named = {"TAGS": tags[row], "KEYS": keys[row], **properties[row]}
            self._account(
                queues[row % len(queues)],
                body=bodies[row],
                properties={name: value for name, value in named.items() if value},
                flag=7,
                sys_flag=0,
                born_host=("10.0.0.9", 4711),
                born_timestamp_ms=born_ms[row],
                reconsume_times=0,
                prepared_transaction_position=0,
            )
        return ColumnBatch(
            count=rows,
            queues=tuple((topic.encode(), queue_id) for topic, queue_id in queues),
            queue_index=array("i", [row % len(queues) for row in range(rows)]),
            body=column(bodies),
            tags=column([text.encode() for text in tags]),
            keys=column([text.encode() for text in keys]),
            properties=column([encode_properties(pairs) for pairs in properties]),
            flag=7,
            born_timestamp=array("q", born_ms),
            born_host=encode_host(("10.0.0.9", 4711)),
            store_host=encode_host(STORE_HOST),
        )

    def _account(self, key: QueueKey, **fields: Any) -> None:
        rows = self.sent[key]
        rows.append({"topic": key[0], "queue_id": key[1], "queue_offset": len(rows), **fields})

    def _stored(self, result: PutResult) -> PutResult:
        assert result.ok, result
        return result


def _rows(records: bytes) -> list[Row]:
    rows = []
    start = 0
    while start < len(records):
        size = int.from_bytes(records[start : start + 4], "big")
        rows.append(ours(decode_record(records, start, limit=start + size), size))
        start += size
    return rows
