"""Headers of plain sends: the same fields as the general decoder reads, or no answer at all."""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.plain_send import PlainBatch, PlainSend, request_decoder
from broker_core.codec.wire.remoting_command import (
    JSON_HEADER,
    RemotingCommand,
    decode_header,
    encode_command,
)
from broker_core.errors import ProtocolViolation
from broker_core.protocol_codes import RequestCode
from tests.codec.codec_backends import BACKENDS

ONE = int(RequestCode.SEND_MESSAGE_V2)
BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
SUFFIX = b"CLUSTER\x01c\x02"
TEXT = "UNIQ_KEY\x01ABC123\x02WAIT\x01true\x02TAGS\x01A b\x02"
FIELDS = {"a": "PG", "b": "Topic", "c": "TBW102", "d": "4", "e": "3", "f": "-1",
          "g": "1700000000000", "h": "7", "i": TEXT, "j": "0", "k": "false", "m": "false",
          "n": "broker-a"}  # fmt: skip


def header_of(code: int = 310, flag: int = 0, **fields: str | None) -> bytes:
    ext = {name: value for name, value in {**FIELDS, **fields}.items() if value is not None}
    return encode_command(RemotingCommand(code, ext, opaque=42, flag=flag))[8:]


def test_a_plain_send(codec: ModuleType) -> None:
    expected = (42, 409, "Topic", 3, -1, 1700000000000, 7, TEXT.encode() + SUFFIX, b"ABC123")
    assert codec.read_plain_send(header_of(), SUFFIX, ONE) == expected
    unclosed = header_of(i=TEXT.removesuffix("\x02"), zz="ignored")
    assert codec.read_plain_send(unclosed, SUFFIX, ONE) == expected


def test_a_plain_batch_may_have_no_unique_key(codec: ModuleType) -> None:
    batch = header_of(code=320, m="true", i="WAIT\x01true\x02")
    expected = (42, 409, "Topic", 3, -1, 1700000000000, 7, b"WAIT\x01true\x02", b"")
    assert codec.read_plain_send(batch, b"", BATCH) == expected
    with_key = codec.read_plain_send(header_of(code=320, m="true"), b"", BATCH)
    assert with_key[-1] == b"ABC123"
    one = header_of(), header_of(code=320), header_of(code=320, m="TRUE"), header_of(m="true")
    assert [codec.read_plain_send(header, b"", BATCH) for header in one] == [None] * 4


@pytest.mark.parametrize(
    "header",
    [
        header_of(code=10), header_of(code=320), header_of(flag=1), header_of(flag=2),
        header_of(code=320, m="true"),
        header_of(e="-1"), header_of(e="x"), header_of(e="2147483648"), header_of(e="03"),
        header_of(f="4294967296"), header_of(g=""), header_of(j="1"), header_of(m="true"),
        header_of(i=None), header_of(b=None), header_of(b=""), header_of(b="T\u00e4"),
        header_of(i=TEXT + "DELAY\x013\x02"), header_of(i=TEXT + "TIMER_DELAY_MS\x013\x02"),
        header_of(i=TEXT + "TRAN_MSG\x01true\x02"), header_of(i="WAIT\x01false\x02" + TEXT),
        header_of(i=TEXT.replace("true", "false")), header_of(i=TEXT + TEXT),
        header_of(i="TAGS\x01A\x02"), header_of(i="UNIQ_KEY\x01a-b\x02"), header_of(i=""),
        header_of(i=TEXT + "\u6807\x01x\x02"), header_of(i=TEXT + "CLUSTER\x01x\x02"),
        header_of(i=TEXT + "\x02"), header_of(i=TEXT + "a\x01\x02"), header_of(i=TEXT + "a\nb"),
        header_of() + b" ", b"", b"{}", b"[]", header_of()[:-1],
        header_of().replace(b'"opaque":42', b'"opaque":42,"opaque":43'),
        header_of().replace(b'"e":"3"', b'"e":"3","e":"2"'),
        header_of().replace(b'"e":"3"', b'"e":3'),
        header_of().replace(b'"opaque":42', b'"opaque":4.2'),
        header_of().replace(b'"version":409', b'"version":null'),
    ],
)  # fmt: skip
def test_everything_else_goes_the_general_way(codec: ModuleType, header: bytes) -> None:
    assert codec.read_plain_send(header, SUFFIX, ONE) is None


def mutated(seed: int) -> bytes:
    """A plain header with a few changed, added or missing bytes."""
    rng = random.Random(seed)
    code, batch = rng.choice([(ONE, "false"), (BATCH, "true"), (BATCH, "false")])
    data = bytearray(header_of(code, e=rng.choice(["0", "3", "00", "-0", "9" * 19]), m=batch))
    for _ in range(rng.choice((0, 1, 1, 2, 4))):
        at = rng.randrange(len(data))
        piece = rng.choice([b"", b'"', b"\\", b"\\u0001", b"{", b"}", b",", b":", b"0", b"\xc3\xa4",
                            b"\x01", b"\\n", bytes((rng.randrange(256),))])  # fmt: skip
        data[at : at + rng.randrange(2)] = piece
    return bytes(data)


@given(st.integers(0, 2**32 - 1))
def test_both_backends_are_one_and_agree_with_the_general_decoder(seed: int) -> None:
    for step in range(60):
        data = mutated(seed * 100 + step)
        code = ONE if step % 2 else BATCH
        found: list[Any] = [codec.read_plain_send(data, SUFFIX, code) for codec in BACKENDS]
        assert all(one == found[0] for one in found)
        if found[0] is None:
            continue
        general = decode_header(JSON_HEADER, data)
        opaque, version, topic, queue_id, sys_flag, born, flag, text, unique = found[0]
        ext = general.ext
        assert (general.code, general.opaque, general.version) == (code, opaque, version)
        assert (ext["b"], ext["e"], ext["f"]) == (topic, str(queue_id), str(sys_flag))
        assert (ext["g"], ext["h"]) == (str(born), str(flag))
        stored = ext["i"].encode()
        assert text == (stored if stored.endswith(b"\x02") else stored + b"\x02") + SUFFIX
        assert unique in stored


@pytest.mark.skipif(len(BACKENDS) < 2, reason="the native codec is not built")
def test_the_decoder_of_a_broker() -> None:
    decode = request_decoder(SUFFIX)
    plain = decode(JSON_HEADER, header_of())
    assert type(plain) is PlainSend
    assert (plain.code, plain.opaque, plain.flag, plain.version) == (310, 42, 0, 409)
    assert plain.ext == FIELDS
    assert plain.reply(0).opaque == 42
    batch = decode(JSON_HEADER, header_of(code=320, m="true"))
    assert type(batch) is PlainBatch
    assert (batch.code, batch.ext) == (320, {**FIELDS, "m": "true"})
    other = decode(JSON_HEADER, header_of(j="1"))
    assert type(other) is RemotingCommand
    assert other.ext["j"] == "1"
    with pytest.raises(ProtocolViolation):
        decode(JSON_HEADER, header_of()[:-1])
