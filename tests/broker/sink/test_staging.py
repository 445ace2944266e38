"""Staged blocks: the checks of an ordinary send apply, and repeats are harmless."""

from __future__ import annotations

import asyncio
import struct
import zlib
from typing import Any

import pytest

from broker_core.codec.records.record_layout import crc_tail
from broker_core.codec.wire.bodies.sink_messages import (
    block_head,
    encode_blocks,
    parse_block,
)
from broker_core.errors import (
    DiskFull,
    InvalidArgument,
    LimitReached,
    MessageTooLarge,
    NoPermission,
    RemoteError,
    RmqError,
    StagingRefused,
)
from broker_core.protocol_codes import ResponseCode
from tests.broker.sink_store import SinkStore, blocks_of, identity
from tests.codec.codec_backends import batch_of, column

IPV6 = bytes(20)


def begun(sinks: SinkStore, batch: int = 0) -> str:
    asyncio.run(sinks.publisher.announce(identity(batch)))
    return sinks.staging.begin(identity(batch))


def block(*bodies: bytes, **fields: Any) -> bytes:
    fields.setdefault("queues", ((b"T", 0),))
    [(_, body)] = encode_blocks(batch_of(*bodies, **fields), 1 << 20)
    return bytes(body)


def staged(sinks: SinkStore, body: bytes) -> int:
    return sinks.staging.append(begun(sinks), 0, *parse_block(body))


def test_blocks_come_in_order_and_again() -> None:
    sinks = SinkStore()
    staging_id = begun(sinks)
    one, two, three = (parse_block(block(b"%d" % n)) for n in range(3))
    assert sinks.staging.append(staging_id, 0, *one) == 1
    assert sinks.staging.append(staging_id, 1, *two) == 1
    # Answers were lost; the blocks are there.
    assert sinks.staging.append(staging_id, 0, *one) == 0
    assert sinks.staging.append(staging_id, 1, *two) == 0
    for index, wrong in ((3, three), (0, two), (1, three), (7, one)):
        with pytest.raises(StagingRefused, match="expects block 2"):
            sinks.staging.append(staging_id, index, *wrong)
    assert sinks.staging.append(staging_id, 2, *three) == 1
    part = sinks.staging.seal(staging_id)
    assert part.record_count == 3
    assert sinks.staging.seal(staging_id) == part
    assert sinks.staging.append(staging_id, 2, *three) == 0
    with pytest.raises(StagingRefused, match="is sealed"):
        sinks.staging.append(staging_id, 3, *one)
    sinks.publish(identity(0), part)
    assert sinks.bodies() == [b"0", b"1", b"2"]
    with pytest.raises(StagingRefused, match="published, dropped or has expired"):
        sinks.staging.append(staging_id, 3, *one)


def test_several_queues_in_one_block() -> None:
    sinks = SinkStore()
    queues = ((b"T", 0), (b"T", 1), (b"U", 0))
    index = struct.pack("=6i", 2, 0, 1, 0, 2, 0)
    rows = [b"%d" % n for n in range(6)]
    staging_id = begun(sinks)
    body = block(*rows, queues=queues, queue_index=index, tags=column(*(b"t" for _ in rows)))
    assert sinks.staging.append(staging_id, 0, *parse_block(body)) == 6
    answer = sinks.publish(identity(0), sinks.staging.seal(staging_id))
    assert answer.offsets == {"T": {0: (0, 3), 1: (0, 1)}, "U": {0: (0, 2)}}
    assert sinks.bodies("T", 0) == [b"1", b"3", b"5"]
    assert sinks.stats.stats()["put_messages"] == 6


@pytest.mark.parametrize("size", [0, 1, 200, 4_000])
def test_rows_are_cut_into_blocks(size: int) -> None:
    sinks = SinkStore()
    rows = [b"%d" % n + bytes(size) for n in range(30)]
    blocks = blocks_of(rows, 1_000)
    assert len(blocks) > 1
    staging_id = begun(sinks)
    for index, body in enumerate(blocks):
        sinks.staging.append(staging_id, index, *parse_block(body))
    sinks.publish(identity(0), sinks.staging.seal(staging_id))
    assert sinks.bodies() == rows


# Refusals


def test_bodies_over_the_limit() -> None:
    sinks = SinkStore(message_size_max=1_000)
    assert staged(sinks, block(b"a", bytes(1_000), b"c")) == 3
    with pytest.raises(MessageTooLarge, match="1001 bytes, maxMessageSize is 1000"):
        staged(sinks, block(b"a", bytes(1_001), b"c"))


def test_parts_of_transactions() -> None:
    """A prepared offset would make the broker believe that a delayed message was delivered."""
    sinks = SinkStore()
    for fields in (
        {"prepared_offset": -1},
        {"prepared_offset": 7},
        {"sys_flag": 0x04},
        {"sys_flag": 0x08},
        {"sys_flag": 0x0C},
        {"prepared_offset": -1, "born_host": IPV6},
    ):
        with pytest.raises((NoPermission, RemoteError)) as refused:
            staged(sinks, block(b"a", b"b", **fields))
        assert refused.value.response_code == ResponseCode.NO_PERMISSION
    assert staged(sinks, block(b"a", born_host=IPV6)) == 1


def test_records_that_are_not_what_they_say() -> None:
    sinks = SinkStore()
    good = block(b"a", b"b")
    _, records = parse_block(good)
    head = block_head(((b"T", 0),))
    bad = {
        "other topic": block_head(((b"U", 0),)) + bytes(records),
        "other queue": block_head(((b"T", 1),)) + bytes(records),
        "cut": good[:-1],
        "more": good + b"x",
        "flipped": good[:-40] + bytes([good[-40] ^ 1]) + good[-39:],
        "no checksum": block(b"a", append_crc=False),
        "long store host": block(b"a", store_host=IPV6),
        "a stored record": head + _with_offset(records, 5),
        "empty": head,
        "zeros": head + bytes(200),
    }
    for name, body in bad.items():
        with pytest.raises(RmqError) as refused:
            staged(sinks, body)
        assert refused.value.response_code in (
            ResponseCode.MESSAGE_ILLEGAL,
            ResponseCode.INVALID_PARAMETER,
        ), name
    for body in (b"", b"\x00", b"\x00\x00", b"\x00\x02\x00\x00\x00\x00\x00\x01T", b"\xff" * 9):
        with pytest.raises(InvalidArgument):
            parse_block(body)


def _with_offset(records: memoryview, queue_offset: int) -> bytes:
    """The first record with another queue offset and a right checksum."""
    size = struct.unpack_from(">i", records)[0]
    record = bytearray(records[:size])
    struct.pack_into(">q", record, 20, queue_offset)
    record[-20:] = crc_tail(zlib.crc32(record[:-20]) & 0x7FFFFFFF)
    return bytes(record)


def test_queues_are_checked_block_by_block() -> None:
    asked: list[tuple[str, int]] = []

    def check(request: Any) -> None:
        asked.append((request.topic, request.queue_id))
        if request.topic != "T":
            raise NoPermission(ResponseCode.NO_PERMISSION, f"{request.topic} is closed")

    sinks = SinkStore(check_queue=check)
    staging_id = begun(sinks)
    sinks.staging.append(staging_id, 0, *parse_block(block(b"a")))
    with pytest.raises(NoPermission, match="U is closed"):
        sinks.staging.append(
            staging_id, 1, *parse_block(block(b"b", queues=((b"T", 3), (b"U", 1))))
        )
    assert asked == [("T", 0), ("T", 3), ("U", 1)]
    # The refused block left nothing behind.
    assert sinks.staging.seal(staging_id).record_count == 1


def test_delayed_rows_cannot_be_staged() -> None:
    """Delays are for at-least-once writes: the topic of delayed messages refuses sends."""

    def check(request: Any) -> None:
        if request.topic != "T":
            raise NoPermission(ResponseCode.NO_PERMISSION, f"{request.topic} is closed")

    sinks = SinkStore(check_queue=check)
    with pytest.raises(NoPermission, match="SCHEDULE_TOPIC_XXXX is closed"):
        staged(sinks, block(b"later", queues=((b"SCHEDULE_TOPIC_XXXX", 0),)))


# Bounds


def test_writers_are_bounded() -> None:
    sinks = SinkStore(staging_limits={"drafts_max": 2})
    ids = [begun(sinks) for _ in range(2)]
    with pytest.raises(LimitReached, match="at most 2"):
        begun(sinks)
    sinks.staging.append(ids[0], 0, *parse_block(block(b"a")))
    sinks.staging.seal(ids[0])
    begun(sinks)


def test_disk_space_is_bounded_and_comes_back() -> None:
    sinks = SinkStore(staging_size_max=2_000)
    staging_id = begun(sinks)
    body = parse_block(block(bytes(500)))
    sinks.staging.append(staging_id, 0, *body)
    with pytest.raises(StagingRefused, match=r"sinkStagingSizeMax=2000; .* broker\.conf"):
        for index in range(1, 5):
            sinks.staging.append(staging_id, index, *body)
    assert sinks.staging.drop([staging_id, "unknown"]) == 1
    assert sinks.store.staging.size == 0
    sinks.staging.append(begun(sinks), 0, *body)


def test_staged_data_expires() -> None:
    sinks = SinkStore(staging_expiry_ms=1_000)
    part = sinks.stage(identity(0), [b"a"])
    open_id = begun(sinks)
    sinks.clock.advance(1_500)
    begun(sinks)
    assert part.staging_id not in sinks.staged_files
    with pytest.raises(StagingRefused):
        sinks.publish(identity(0), part)
    with pytest.raises(StagingRefused):
        sinks.staging.append(open_id, 0, *parse_block(block(b"a")))
    assert sinks.write(identity(0), [b"b"]).batch == 0


def test_data_of_a_killed_broker_expires_too() -> None:
    sinks = SinkStore(staging_expiry_ms=1_000)
    sinks.stage(identity(0), [b"a"])
    begun(sinks)
    after = sinks.killed()
    assert len(after.staged_files) == 2
    after.clock.advance(1_500)
    after.store.staging.expire()
    assert after.staged_files == []


def test_a_full_disk_is_said() -> None:
    sinks = SinkStore()
    staging_id = begun(sinks)
    sinks.disk.fail(sinks.disk.operation_count + 1, 28, sticky=True, methods={"write"})
    with pytest.raises(DiskFull):
        sinks.staging.append(staging_id, 0, *parse_block(block(b"a")))
