"""Frames as RocketMQ's peers write and read them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.errors import ReplicationRefused
from broker_core.replication.ha_frames import (
    FrameParser,
    ReportParser,
    encode_header,
    encode_report,
)

POSITIONS = st.integers(0, (1 << 63) - 1)


def test_golden_bytes() -> None:
    # The three examples of Apache's protocol: a report, a transfer of 300 bytes, a heartbeat.
    assert encode_report(9086).hex() == "000000000000237e"
    assert encode_header(8192, 300).hex() == "00000000000020000000012c"
    assert encode_header(9086, 0).hex() == "000000000000237e00000000"


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data, cut anywhere."""
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(places)]


@given(st.lists(POSITIONS, max_size=20), st.lists(st.integers(0, 200)))
def test_reports_in_any_pieces(positions: list[int], cuts: list[int]) -> None:
    parser = ReportParser()
    data = b"".join(map(encode_report, positions))
    assert [p for piece in chunks(data, cuts) for p in parser.receive(piece)] == positions


@given(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(max_size=50)), max_size=10),
    st.lists(st.integers(0, 800)),
)
def test_frames_in_any_pieces(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    parser = FrameParser()
    data = b"".join(encode_header(at, len(body)) + body for at, body in frames)
    written: dict[int, bytes] = {}
    heartbeats = []
    found = bytearray()
    for piece in chunks(data, cuts):
        for position, body in parser.receive(memoryview(piece)):
            if body:
                written[position] = bytes(body)
                found += body
            else:
                heartbeats.append(position)
    assert bytes(found) == b"".join(body for _, body in frames)
    assert heartbeats == [at for at, body in frames if not body]
    assert all(any(a <= p < a + len(b) for a, b in frames) for p in written)


@pytest.mark.parametrize(
    "header", [encode_header(-1, 0), encode_header(0, -1), encode_header(0, (1 << 31) - 1)]
)
def test_sizes_and_positions_that_no_master_sends(header: bytes) -> None:
    with pytest.raises(ReplicationRefused) as refused:
        FrameParser().receive(memoryview(header))
    assert refused.value.kind == "protocol"
