"""The frame parser: any split gives the same commands, invalid lengths end the connection."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import tracemalloc
from concurrent.futures import ProcessPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import ProtocolViolation
from tests.codec.wire_frames import (
    ROUTE_REQUEST_JSON,
    frame_bytes,
    framed,
    mutated,
    sample_frames,
)

FRAMES = sample_frames()


def drain(parser: FrameParser) -> list[RemotingCommand]:
    found = []
    while (command := parser.next_command()) is not None:
        found.append(command)
    return found


def summary(commands: list[RemotingCommand]) -> list[tuple[object, ...]]:
    return [(c.code, c.opaque, c.flag, c.remark, c.ext, bytes(c.body)) for c in commands]


def parse_whole(data: bytes) -> list[tuple[object, ...]]:
    parser = FrameParser()
    parser.receive_data(data)
    return summary(drain(parser))


# Splits


@given(
    order=st.lists(st.sampled_from(FRAMES), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 4_000), max_size=12),
)
def test_any_split_gives_the_same_commands(order: list[bytes], cuts: list[int]) -> None:
    data = b"".join(order)
    expected = parse_whole(data)
    assert len(expected) == len(order)
    parser = FrameParser()
    found = []
    edges = sorted({0, len(data), *(min(cut, len(data)) for cut in cuts)})
    for start, end in itertools.pairwise(edges):
        parser.receive_data(data[start:end])
        found += drain(parser)
    assert summary(found) == expected
    assert parser.is_between_frames and parser.buffered_size == 0


@given(
    order=st.lists(st.sampled_from(FRAMES), min_size=1, max_size=6),
    cuts=st.lists(st.integers(1, 700), min_size=1, max_size=12),
    least=st.integers(0, 300),
)
def test_bodies_that_are_received_in_place_are_the_same(
    order: list[bytes], cuts: list[int], least: int
) -> None:
    """As a socket is read: into the room of a body if there is one, else as any other data."""
    data = b"".join(order)
    parser = FrameParser()
    parser.places_body = lambda _, size: size >= least
    found: list[RemotingCommand] = []
    position, sizes = 0, itertools.cycle(cuts)
    while position < len(data):
        room = parser.body_room()
        part = data[position : position + next(sizes)]
        if room is None:
            parser.receive_data(part)
        else:
            part = part[: len(room)]
            room[: len(part)] = part
            parser.body_received(len(part))
        position += len(part)
        found += drain(parser)
    assert summary(found) == parse_whole(data)
    assert parser.is_between_frames and parser.buffered_size == 0


def test_a_body_in_place_is_read_only_and_its_owners_alone() -> None:
    body = bytes(range(256)) * 4
    data = frame_bytes(RemotingCommand(11, body=body))
    parser = FrameParser()
    parser.places_body = lambda command, size: command.code == 11 and size == len(body)
    found = []
    for _ in range(2):
        parser.receive_data(data[:-600])
        assert parser.next_command() is None
        # Other data than the socket's is taken, too, even with the next frame behind it.
        parser.receive_data(data[-600:-300])
        room = parser.body_room()
        assert room is not None and len(room) == 300
        room[:] = data[-300:]
        parser.body_received(300)
        found += drain(parser)
    first, second = (command.body for command in found)
    assert type(first) is memoryview and first.readonly
    assert first == second == body
    assert parser.body_room() is None
    parser.receive_data(data[:-1])
    assert parser.next_command() is None
    parser.receive_data(data[-1:] + data)
    assert [bytes(command.body) for command in drain(parser)] == [body, body]


def test_a_body_that_is_not_kept_is_not_placed() -> None:
    data = frame_bytes(RemotingCommand(11, body=bytes(1_000)))
    parser = FrameParser()
    parser.keeps_body = lambda *_: False
    parser.places_body = lambda *_: True
    parser.receive_data(data[:-600])
    assert parser.next_command() is None
    assert parser.body_room() is None
    parser.receive_data(data[-600:])
    assert [command.body for command in drain(parser)] == [b""]


def test_byte_by_byte() -> None:
    data = b"".join(FRAMES)
    parser = FrameParser()
    found = []
    for position in range(len(data)):
        parser.receive_data(data[position : position + 1])
        found += drain(parser)
    assert summary(found) == parse_whole(data)


def test_data_that_is_not_taken_out_at_once() -> None:
    big = frame_bytes(RemotingCommand(10, body=b"z" * 9_000, opaque=1))
    data = big + b"".join(FRAMES) + big
    parser = FrameParser()
    found: list[RemotingCommand] = []
    for start in range(0, len(data), 700):
        parser.receive_data(data[start : start + 700])
        if start % 2_100 == 0 and (command := parser.next_command()) is not None:
            found.append(command)
    found += drain(parser)
    assert summary(found) == parse_whole(data)


@pytest.mark.parametrize("chunk_size", [1, 7, 1000, 4095, 4096, 65_536])
def test_large_bodies_in_small_pieces(chunk_size: int) -> None:
    body = random.Random(1).randbytes(70_000)
    data = frame_bytes(RemotingCommand(10, body=body, opaque=1)) * 2
    parser = FrameParser()
    found = []
    for start in range(0, len(data), chunk_size):
        parser.receive_data(data[start : start + chunk_size])
        found += drain(parser)
    assert [command.body for command in found] == [body, body]
    assert all(type(command.body) is bytes for command in found)


def test_sizes_that_it_tells() -> None:
    frame = frame_bytes(RemotingCommand(10, body=b"b" * 5_000))
    parser = FrameParser()
    assert parser.is_between_frames
    parser.receive_data(frame[:3_000])
    assert parser.next_command() is None
    assert (parser.buffered_size > 2_800, parser.is_between_frames) == (True, False)
    parser.receive_data(frame[3_000:] + frame[:5])
    assert parser.next_command() is not None
    assert (parser.frame_size, parser.buffered_size) == (len(frame), 5)
    assert not parser.is_between_frames


# Lengths


def head(length: int, header_size: int, serialize_type: int = 0) -> bytes:
    word = (serialize_type << 24 | header_size) & 0xFFFFFFFF
    return (length & 0xFFFFFFFF).to_bytes(4, "big") + word.to_bytes(4, "big")


@pytest.mark.parametrize(
    "data",
    [
        head(0, 0)[:4],
        head(3, 0)[:4],
        head(-1, 0)[:4],
        head(-(1 << 31), 0)[:4],
        head((1 << 31) - 1, 0)[:4],
        head((16 << 20) - 3, 0)[:4],
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        head(4, 1),
        head(100, 97),
        head((16 << 20) - 4, 0xFFFFFF),
        head(1 << 20, (256 << 10) + 1),
        head(100, 50, 2),
        head(100, 50, 255),
        head(4, 0),
    ],
    ids=lambda data: data[:8].hex(),
)
def test_bad_lengths_are_refused_before_anything_is_kept(data: bytes) -> None:
    for chunk_size in (1, len(data)):
        parser = FrameParser()
        with pytest.raises(ProtocolViolation):
            for start in range(0, len(data), chunk_size):
                parser.receive_data(data[start : start + chunk_size])
                parser.next_command()
        assert parser.buffered_size <= len(data)


def test_limits_are_inclusive() -> None:
    frame = frame_bytes(RemotingCommand(34, {"a": "b"}, b"body"))
    header_size = int.from_bytes(frame[5:8], "big")
    for frame_max, header_max, is_accepted in (
        (len(frame), header_size, True),
        (len(frame) - 1, header_size, False),
        (len(frame), header_size - 1, False),
    ):
        parser = FrameParser(frame_max, header_max)
        parser.receive_data(frame)
        if is_accepted:
            assert parser.next_command() is not None
        else:
            with pytest.raises(ProtocolViolation):
                parser.next_command()


@pytest.mark.parametrize("code", [10, 310, 320, 324, 325])
def test_sends_may_have_long_properties(code: int) -> None:
    """What is too long for a store gets an answer, which a closed connection would not be."""
    command = RemotingCommand(code, {"i": "p" * 100_000}, b"body")
    parser = FrameParser()
    parser.receive_data(frame_bytes(command))
    found = parser.next_command()
    assert found is not None and found.ext == command.ext
    for refused in (RemotingCommand(34, command.ext), RemotingCommand(code, {"i": "p" * 300_000})):
        parser = FrameParser()
        parser.receive_data(frame_bytes(refused))
        with pytest.raises(ProtocolViolation, match="up to 65536 are accepted"):
            parser.next_command()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "the peer began a TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", "the peer speaks HTTP"),
        (b"GET / HTTP/1.1\r\n", "the peer speaks HTTP"),
        (b"POST /x HTTP/1.1\r\n", "the peer speaks HTTP"),
        (b"SSH-2.0-OpenSSH", "a frame of 1397966893 bytes; from 4 to 16777212 are accepted"),
    ],
)
def test_other_protocols_are_recognised(data: bytes, text: str) -> None:
    for size in (4, len(data)):
        parser = FrameParser()
        parser.receive_data(data[:size])
        with pytest.raises(ProtocolViolation, match=f"^{text}"):
            parser.next_command()


def test_commands_before_a_bad_frame_still_come_out() -> None:
    parser = FrameParser()
    parser.receive_data(ROUTE_REQUEST_JSON + head(-1, 0))
    assert parser.next_command() is not None
    for _ in range(2):
        with pytest.raises(ProtocolViolation):
            parser.next_command()


# Memory


def test_memory_follows_the_bytes_received() -> None:
    tracemalloc.start()
    try:
        parsers = []
        for _ in range(200):
            parser = FrameParser()
            parser.receive_data(head((16 << 20) - 4, 64 << 10))
            assert parser.next_command() is None
            parsers.append(parser)
        held, _ = tracemalloc.get_traced_memory()
        assert held < 400_000
    finally:
        tracemalloc.stop()


def test_single_bytes_cost_no_object_each() -> None:
    frame = frame_bytes(RemotingCommand(10, body=bytes(100_000)))
    parser = FrameParser()
    tracemalloc.start()
    try:
        for position in range(50_000):
            parser.receive_data(frame[position : position + 1])
            assert parser.next_command() is None
        held, _ = tracemalloc.get_traced_memory()
        assert held < 100_000
    finally:
        tracemalloc.stop()


def test_a_body_is_copied_once() -> None:
    body_size = 8 << 20
    frame = frame_bytes(RemotingCommand(10, body=bytes(body_size)))
    chunks = [frame[start : start + (256 << 10)] for start in range(0, len(frame), 256 << 10)]
    parser = FrameParser()
    tracemalloc.start()
    try:
        for chunk in chunks:
            parser.receive_data(chunk)
            command = parser.next_command()
        assert command is not None and len(command.body) == body_size
        _, peak = tracemalloc.get_traced_memory()
        assert peak < body_size * 1.1
    finally:
        tracemalloc.stop()


def test_a_few_bytes_do_not_hold_a_chunk() -> None:
    parser = FrameParser()
    filler = frame_bytes(RemotingCommand(10, body=bytes(200_000)))
    parser.receive_data(filler + ROUTE_REQUEST_JSON[:10])
    assert len(drain(parser)) == 1
    assert parser.buffered_size == 10
    assert len(parser._data) == 10


# Noise


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """Feed `count` mutated frames; the number that became commands and that were refused."""
    rng = random.Random(seed)
    random_ = rng.random
    decoded = refused = 0
    parser = FrameParser()
    for _ in range(count):
        data = mutated(FRAMES[int(random_() * len(FRAMES))], rng)
        # Half of them with lengths that fit, or most would die at the first check.
        if random_() < 0.5:
            data = framed(data)
        try:
            parser.receive_data(data)
            while (command := parser.next_command()) is not None:
                decoded += 1
                assert all(type(value) is str for value in command.ext.values())
                assert len(command.body) <= len(data) + (1 << 20)
        except ProtocolViolation:
            refused += 1
            parser = FrameParser()
        # Sometimes the next frame becomes the body of one that announced too much.
        if not parser.is_between_frames and (random_() < 0.8 or parser.buffered_size > 1 << 16):
            parser = FrameParser()
    return decoded, refused


@pytest.mark.long
def test_mutated_frames(long_run: bool, summary_lines: list[str]) -> None:
    count, workers = 10_000_000 if long_run else 2_000_000, 4
    # Each worker has its own seed, so that a failure is reproducible on every machine.
    seeds = range(20_240_601, 20_240_601 + workers)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, os.cpu_count() or 1), mp_context=context) as pool:
        results = list(pool.map(fuzz, [count // workers] * workers, seeds))
    decoded, refused = (sum(column) for column in zip(*results, strict=True))
    assert decoded > count // 20 and refused > count // 20
    summary_lines.append(f"frame parser fuzz: {count} frames, {decoded} decoded, {refused} refused")


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    for prefix in (b"", head(len(data) + 4, len(data)), head(len(data) + 4, len(data), 1)):
        parser = FrameParser()
        parser.receive_data(prefix + data)
        try:
            drain(parser)
        except ProtocolViolation:
            continue
