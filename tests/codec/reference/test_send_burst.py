"""Many plain sends at once: both codecs take the same frames and answer with the same bytes."""

from __future__ import annotations

import random
import struct
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.wire.hot_replies import REPLY_ENDING, sent_reply
from tests.codec.codec_backends import BACKENDS, HOST, HOST_V6, PURE_PYTHON
from tests.codec.wire.test_plain_send import SUFFIX, header_of, mutated

TEXT = "UNIQ_KEY\x01%s\x02WAIT\x01true\x02"
READY = {"Topic": 4, "Other": 1}
LIMITS = (1 << 20, 1 << 16, 1 << 16, 100)
CONSTANTS = b'"MSG_REGION":"r","TRACE_ON":"true",'


def frame_of(header: bytes, body: bytes = b"body") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def send(unique: str = "A1", body: bytes = b"body", **fields: str) -> bytes:
    return frame_of(header_of(**{"i": TEXT % unique, **fields}), body)


def read(codec: ModuleType, data: bytes, start: int = 0, *limits: int) -> Any:
    return codec.read_sends(data, start, READY, SUFFIX, *(limits or LIMITS))


def test_the_frames_of_a_wake_up_become_one_batch(codec: ModuleType) -> None:
    frames = [
        send("A1", b"one", e="3", f="1"),
        send("B22", b"", e="0", g="5", f="1"),
        send("C", b"three", e="3", f="1"),
    ]
    data = b"xx" + b"".join(frames) + frames[0][:-1]
    (
        end,
        count,
        queues,
        index,
        bodies,
        body_ends,
        texts,
        text_ends,
        born,
        marks,
        flag,
        sys_flag,
    ) = read(codec, data, 2)
    assert (end, count) == (len(data) - len(frames[0]) + 1, 3)
    assert queues == ((b"Topic", 3), (b"Topic", 0))
    assert np.frombuffer(index, np.int32).tolist() == [0, 1, 0]
    assert bodies == b"onethree"
    assert np.frombuffer(body_ends, np.int64).tolist() == [0, 3, 3, 8]
    expected = [(TEXT % unique).encode() + SUFFIX for unique in ("A1", "B22", "C")]
    assert texts == b"".join(expected)
    assert np.frombuffer(text_ends, np.int64).tolist() == [0, *np.cumsum([*map(len, expected)])]
    assert np.frombuffer(born, np.int64).tolist() == [1700000000000, 5, 1700000000000]
    uniques = [
        (opaque, texts[at : at + size]) for opaque, at, size in struct.iter_unpack("=qqq", marks)
    ]
    assert uniques == [(42, b"A1"), (42, b"B22"), (42, b"C")]
    assert (flag, sys_flag) == (7, 1)


@pytest.mark.parametrize(
    "second",
    [
        send(f="0", b="Unknown"), send(f="0", e="4"), send(f="0", b="Other", e="1"),
        send(f="0", h="8"), send(f="1"), send(f="4"), send(f="0", j="1"),
        frame_of(header_of(code=320, f="0")), frame_of(b'{"code":310,}'), b"",
        send(f="0")[:-1], send(f="0")[:20], send(f="0", body=bytes(1 << 17)),
        b"\xff" + send(f="0")[1:], b"\0\0\0\3" + send(f="0")[4:], send(f="0")[:4] + b"\1" +
        send(f="0")[5:], send(f="0")[:5] + b"\xff" + send(f="0")[6:],
    ],
)  # fmt: skip
def test_a_send_of_another_form_ends_the_burst(codec: ModuleType, second: bytes) -> None:
    first = send(f="0", h="7")
    found = read(codec, first + second)
    assert found[:3] == (len(first), 1, ((b"Topic", 3),))


def test_topics_may_be_mixed(codec: ModuleType) -> None:
    places = [("Topic", 0), ("Other", 0), ("Topic", 1), ("Topic", 0), ("Other", 0), ("Topic", 1)]
    frames = [send(f"A{n}", f="0", b=topic, e=str(e)) for n, (topic, e) in enumerate(places)]
    data = b"".join(frames)
    found = read(codec, data)
    assert found[:3] == (len(data), 6, ((b"Topic", 0), (b"Other", 0), (b"Topic", 1)))
    assert np.frombuffer(found[3], np.int32).tolist() == [0, 1, 2, 0, 1, 2]
    # A queue is known by its whole name.
    alike = send(f="0", b="Topic") + send(f="0", b="Topi") + send(f="0", b="Topics")
    ready = {"Topic": 4, "Topi": 4, "Topics": 4}
    queues = codec.read_sends(alike, 0, ready, b"", *LIMITS)[2]
    assert queues == ((b"Topic", 3), (b"Topi", 3), (b"Topics", 3))


def test_limits(codec: ModuleType) -> None:
    frame = send(f="0")
    assert read(codec, frame * 5, 0, 1 << 20, 1 << 16, 1 << 16, 3)[:2] == (3 * len(frame), 3)
    assert read(codec, frame, 0, len(frame) - 1, 1 << 16, 1 << 16, 3) is None
    assert read(codec, frame, 0, 1 << 20, 20, 1 << 16, 3) is None
    assert read(codec, frame, 0, 1 << 20, 1 << 16, 3, 3) is None
    assert read(codec, frame, 0, 1 << 20, 1 << 16, 1 << 16, 0) is None
    assert read(codec, frame, len(frame)) is None
    topics = {f"T-{number}": 9 for number in range(300)}
    many = [send(f="0", b=topic, e=str(index % 9)) for index, topic in enumerate(topics)]
    data = b"".join(many[:256]) + many[3] + many[256] + many[4]
    found = codec.read_sends(data, 0, topics, b"", 1 << 20, 1 << 16, 1 << 16, 1_000)
    assert found[1] == 257
    assert len(found[2]) == len(set(found[2])) == 256
    assert np.frombuffer(found[3], np.int32).tolist() == [*range(256), 3]
    with pytest.raises(ValueError):
        read(codec, frame, len(frame) + 1)
    with pytest.raises(ValueError):
        read(codec, frame, -1)


def encoded(burst: Any, host: bytes) -> bytes:
    """The records that a burst becomes from position 1000 on."""
    _, count, queues, index, bodies, body_ends, texts, text_ends, born, _, flag, sys_flag = burst
    batch = ColumnBatch(
        count, queues, index, (bodies, body_ends, 8), None, None, (texts, text_ends, 8),
        flag, sys_flag, born, HOST, host,
    )  # fmt: skip
    out = bytearray(1 << 16)
    offsets = np.arange(len(queues), dtype=np.int64) * 7
    rows, end = PURE_PYTHON.encode_batch(batch, 0, offsets, 5, out, 0, len(out), 1000)
    assert rows == count
    return bytes(out[:end])


@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["IPv4", "IPv6"])
def test_the_answers_are_those_to_single_sends(codec: ModuleType, host: bytes) -> None:
    data = b"".join(
        send(f"A{number}", bytes(number), f="0", e=str(number % 3)) for number in range(9)
    )
    burst = read(codec, data)
    records = encoded(burst, host)
    replies = codec.join_sent_replies(
        records, 0, 9, host, 1000, burst[9], burst[6], CONSTANTS, REPLY_ENDING
    )
    expected, at, offsets = b"", 0, {0: 0, 1: 7, 2: 14}
    for number in range(9):
        queue = number % 3
        message_id = host.hex().upper().encode() + b"%016X" % (1000 + at)
        unique = b"A%d" % number
        expected += sent_reply(42, CONSTANTS, message_id, queue, offsets[queue], unique)
        offsets[queue] += 1
        at += struct.unpack_from(">i", records, at)[0]
    assert replies == expected


def test_the_records_of_each_queue_are_counted(codec: ModuleType) -> None:
    places = [("Topic", 0), ("Other", 0), ("Topic", 2), ("Topic", 0)]
    frames = [send(f"A{n}", bytes(n), f="0", b=t, e=str(e)) for n, (t, e) in enumerate(places)]
    burst = read(codec, b"".join(frames))
    records = b"xx" + encoded(burst, HOST)
    sizes, at = [], 2
    while at < len(records):
        sizes.append(struct.unpack_from(">i", records, at)[0])
        at += sizes[-1]
    counted = codec.count_records(records, 2, 4, burst[3], 3)
    assert counted == ((2, sizes[0] + sizes[3]), (1, sizes[1]), (1, sizes[2]))
    # The last ones did not fit into the file.
    counted = codec.count_records(records, 2, 2, burst[3], 3)
    assert counted == ((1, sizes[0]), (1, sizes[1]), (0, 0))
    index = burst[3]
    for bad in (
        (records[:-1], 2, 4, index, 3), (records, 3, 4, index, 3), (records, -1, 4, index, 3),
        (records, 2, 0, index, 3), (records, 2, 4, index[:-1], 3), (records, 2, 4, index, 2),
        (records, 2, 4, index, 1 << 20), (records, 2, 1, struct.pack("=i", -1), 3),
    ):  # fmt: skip
        with pytest.raises(ValueError):
            codec.count_records(*bad)


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native codec is not built")
@given(st.integers(0, 2**32 - 1))
def test_both_codecs_are_one(seed: int) -> None:
    native = BACKENDS[1]
    rng = random.Random(seed)
    frames = []
    for number in range(rng.randrange(1, 8)):
        header = mutated(rng.randrange(1 << 32)) if rng.random() < 0.2 else header_of(
            i=TEXT % f"K{number}", e=str(rng.randrange(6)), f=rng.choice(["0", "0", "0", "1", "8"]),
            b=rng.choice(["Topic", "Topic", "Topic", "Other"]),
        )  # fmt: skip
        frames.append(frame_of(header, rng.randbytes(rng.randrange(40))))
    data = bytearray(b"".join(frames))
    if rng.random() < 0.3:
        data[rng.randrange(len(data))] = rng.randrange(256)
    data = data[: len(data) - rng.choice([0, 0, 0, rng.randrange(20)])]
    burst = read(native, bytes(data))
    assert burst == read(PURE_PYTHON, bytes(data))
    if burst is None:
        return
    records = encoded(burst, HOST)[: rng.choice([None, None, rng.randrange(1 << 10)])]
    marks = bytearray(burst[9])
    if rng.random() < 0.3:
        marks[rng.randrange(len(marks))] = rng.randrange(256)
    arguments = (
        records, rng.choice([0, 0, 0, 1, -1, 1 << 40]), burst[1] + rng.choice([0, 0, 0, -1, 1]),
        rng.choice([HOST, HOST, HOST[1:]]), rng.choice([0, 1000, -1, (1 << 63) - 1 - (1 << 20)]),
        marks, burst[6], CONSTANTS, REPLY_ENDING,
    )  # fmt: skip
    assert answers(native, *arguments) == answers(PURE_PYTHON, *arguments)
    index = bytearray(burst[3])
    if rng.random() < 0.2:
        index[rng.randrange(len(index))] = rng.randrange(256)
    counted = (*arguments[:3], index, len(burst[2]) + rng.choice([0, 0, 0, -1, 1]))
    assert answers(native, *counted, name="count_records") == answers(
        PURE_PYTHON, *counted, name="count_records"
    )


def answers(codec: ModuleType, *arguments: Any, name: str = "join_sent_replies") -> Any:
    try:
        return getattr(codec, name)(*arguments)
    except ValueError as error:
        return str(error)
