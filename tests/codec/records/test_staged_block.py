"""Blocks of a staging file."""

from __future__ import annotations

import pytest

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.staged_block import (
    HEAD_SIZE,
    BlockEncoder,
    block_checksum,
    encode_head,
    encode_table,
    join_heads,
    parse_head,
    parse_table,
)
from broker_core.errors import StagingRefused
from tests.codec.codec_backends import HOST, column

QUEUES = ((b"T", 0), (b"U", 3))
HOSTS = {"born_host": HOST, "store_host": HOST}


def test_a_block_has_its_head_its_table_and_its_records() -> None:
    table = encode_table(QUEUES)
    head = parse_head("id", encode_head(table, b"records", 2))
    assert (head.table_size, head.records_size, head.record_count) == (len(table), 7, 2)
    assert head.size == HEAD_SIZE + len(table) + 7
    assert head.checksum == block_checksum(table, b"records")
    assert parse_table("id", table) == QUEUES


def test_rows_are_cut_into_blocks() -> None:
    batch = ColumnBatch(50, ((b"T", 0),), None, column(*[b"x" * 100] * 50), **HOSTS)
    encoder, rows, checksum = BlockEncoder(2_000), 0, 0
    heads = []
    for count, head, block in encoder.blocks(batch):
        parsed = parse_head("id", head)
        assert parsed.record_count == count
        assert parsed.size == len(block) <= 2_000
        start = HEAD_SIZE + parsed.table_size
        assert parsed.checksum == block_checksum(block[HEAD_SIZE:start], block[start:])
        rows, checksum = rows + count, join_heads(head, checksum)
        heads.append(head)
    assert rows == 50
    assert len(heads) > 2
    assert checksum == join_heads(b"".join(heads))


def test_a_row_larger_than_a_block_is_a_block() -> None:
    batch = ColumnBatch(1, ((b"T", 0),), None, column(b"x" * 5_000), **HOSTS)
    ((count, _, block),) = [(c, h, bytes(b)) for c, h, b in BlockEncoder(100).blocks(batch)]
    assert count == 1
    assert len(block) > 5_000


@pytest.mark.parametrize("data", [b"", b"x" * (HEAD_SIZE - 1), b"x" * HEAD_SIZE])
def test_what_is_no_head(data: bytes) -> None:
    with pytest.raises(StagingRefused, match="id: a block"):
        parse_head("id", data)


@pytest.mark.parametrize("data", [b"", b"\xc1", encode_table(QUEUES)[:-1], b"\x01", b"\x91\x01"])
def test_what_is_no_table(data: bytes) -> None:
    with pytest.raises(StagingRefused, match="queue table is damaged"):
        parse_table("id", data)
