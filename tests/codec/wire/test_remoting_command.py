"""Commands of the remoting protocol: golden bytes, both header forms, what peers get wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.wire.frame_parser import FrameParser
from broker_core.codec.wire.remoting_command import (
    BINARY_HEADER,
    JSON_HEADER,
    RemotingCommand,
    decode_header,
    encode_command,
)
from broker_core.errors import InvalidArgument, ProtocolViolation
from broker_core.protocol_codes import LanguageCode, RequestCode, ResponseCode
from tests.codec.wire_frames import (
    BATCH_BODY,
    NO_ROUTE_RESPONSE_BINARY,
    ROUTE_REQUEST_BINARY,
    ROUTE_REQUEST_JSON,
    STORED_MESSAGE,
    frame_bytes,
)


def parse_one(frame: bytes) -> RemotingCommand:
    parser = FrameParser()
    parser.receive_data(frame)
    command = parser.next_command()
    assert command is not None
    assert parser.next_command() is None
    assert parser.is_between_frames
    return command


def parts(command: RemotingCommand) -> tuple[object, ...]:
    return (
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext,
        bytes(command.body),
        command.serialize_type,
    )


# Golden frames


def test_json_request_byte_for_byte() -> None:
    command = RemotingCommand(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T1"}, opaque=7, language=LanguageCode.JAVA
    )
    assert frame_bytes(command) == ROUTE_REQUEST_JSON
    expected = (105, LanguageCode.JAVA, 409, 7, 0, None, {"topic": "T1"}, b"", JSON_HEADER)
    assert parts(parse_one(ROUTE_REQUEST_JSON)) == expected


def test_binary_request_byte_for_byte() -> None:
    command = RemotingCommand(105, {"topic": "T1"}, opaque=7, serialize_type=BINARY_HEADER)
    assert frame_bytes(command) == ROUTE_REQUEST_BINARY
    expected = (105, LanguageCode.PYTHON, 409, 7, 0, None, {"topic": "T1"}, b"", BINARY_HEADER)
    assert parts(parse_one(ROUTE_REQUEST_BINARY)) == expected


def test_binary_response_byte_for_byte() -> None:
    request = parse_one(ROUTE_REQUEST_BINARY)
    response = request.reply(ResponseCode.TOPIC_NOT_EXIST, "no route")
    assert frame_bytes(response) == NO_ROUTE_RESPONSE_BINARY
    found = parse_one(NO_ROUTE_RESPONSE_BINARY)
    assert (found.code, found.remark, found.ext, found.is_response) == (17, "no route", {}, True)


@pytest.mark.parametrize("serialize_type", [JSON_HEADER, BINARY_HEADER])
@pytest.mark.parametrize("body", [STORED_MESSAGE, BATCH_BODY])
def test_bodies_follow_the_header_unchanged(serialize_type: int, body: bytes) -> None:
    command = RemotingCommand(320, {"m": "true"}, body, opaque=9, serialize_type=serialize_type)
    frame = frame_bytes(command)
    assert frame.endswith(body)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert parse_one(frame).body == body


def test_json_response_byte_for_byte() -> None:
    request = RemotingCommand(310, {"a": "PG"}, b"hi", opaque=-5)
    ext = {"msgId": "0A", "queueId": "2", "queueOffset": "5"}
    header = (
        b'{"code":0,"extFields":{"msgId":"0A","queueId":"2","queueOffset":"5"},"flag":1,'
        b'"language":"PYTHON","opaque":-5,"serializeTypeCurrentRPC":"JSON","version":409}'
    )
    head = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big")
    assert frame_bytes(request.reply(0, None, ext)) == head + header


# Commands


def test_a_reply_mirrors_its_request() -> None:
    request = RemotingCommand(10, opaque=-3, serialize_type=BINARY_HEADER, language=0, version=121)
    reply = request.reply(1, "why", {"a": "b"}, b"body")
    expected = (1, LanguageCode.PYTHON, 409, -3, 1, "why", {"a": "b"}, b"body", BINARY_HEADER)
    assert parts(reply) == expected
    assert not request.is_response
    assert reply.is_response and not reply.is_oneway


def test_a_reply_to_a_oneway_is_marked_for_dropping() -> None:
    reply = RemotingCommand(15, flag=2).reply()
    assert reply.is_response and reply.is_oneway


def test_replies_do_not_share_their_fields() -> None:
    request = RemotingCommand(10)
    request.reply().ext["a"] = "b"
    assert request.reply().ext == {} == request.ext


def test_what_repr_shows() -> None:
    command = RemotingCommand(10, {"Signature": "secret"}, b"secret", opaque=4)
    assert repr(command) == "<request code=10 opaque=4 ext=1 body=6>"
    assert "secret" not in repr(command)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(
    code=st.integers(-(1 << 15), (1 << 15) - 1),
    language=st.sampled_from(LanguageCode),
    version=st.integers(0, (1 << 15) - 1),
    opaque=I32,
    flag=I32,
    remark=st.none() | TEXTS.filter(bool),
    ext=st.dictionaries(TEXTS, TEXTS, max_size=8),
    body=st.binary(max_size=64),
    serialize_type=st.sampled_from([JSON_HEADER, BINARY_HEADER]),
)
def test_round_trip(**fields: object) -> None:
    command = RemotingCommand(**fields)  # type: ignore[arg-type]
    frame = frame_bytes(command)
    assert parts(parse_one(frame)) == parts(command)
    if command.serialize_type == JSON_HEADER:
        header = json.loads(frame[8 : 8 + int.from_bytes(frame[5:8], "big")])
        assert all(isinstance(value, str) for value in header["extFields"].values())


# What peers send


def json_command(text: str) -> RemotingCommand:
    return decode_header(JSON_HEADER, text.encode())


def test_node_sends_raw_numbers_and_booleans() -> None:
    found = json_command(
        '{"code":310,"language":"JAVA","version":121,"opaque":1,"flag":0,"extFields":'
        '{"a":"PG","queueId":0,"unitMode":false,"batch":true,"born":1700000000123,"r":1.5,"n":null}}'
    )
    assert found.ext == {
        "a": "PG",
        "queueId": "0",
        "unitMode": "false",
        "batch": "true",
        "born": "1700000000123",
        "r": "1.5",
    }


@pytest.mark.parametrize("fields", ["", ',"extFields":null', ',"extFields":{}'])
def test_absent_ext_is_an_empty_dict(fields: str) -> None:
    assert json_command('{"code":34,"opaque":1' + fields + "}").ext == {}


def test_unknown_keys_and_key_order_do_not_matter() -> None:
    found = json_command(
        '{"zz":[{"deep":1}],"version":409,"remark":null,"opaque":-2147483648,"flag":0,"code":105,'
        '"new":{"a":{"b":1}},"serializeTypeCurrentRPC":"JSON"}'
    )
    assert (found.code, found.opaque, found.remark) == (105, -2147483648, None)


@pytest.mark.parametrize(
    ("written", "language"),
    [('"GO"', 9), ('"NODE_JS"', 13), ('"COBOL"', 7), ("9", 9), ("99", 7), ("null", 7), ("[]", 7)],
)
def test_unknown_languages_are_others(written: str, language: int) -> None:
    assert json_command('{"code":1,"language":' + written + "}").language == language


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b'"text"',
        b"null",
        b'{"code":NaN}',
        b'{"code":1,"extFields":{"a":Infinity}}',
        b'{"code":"105"}',
        b'{"code":1.5}',
        b'{"code":true}',
        b'{"code":null}',
        b'{"code":2147483648}',
        b'{"opaque":-2147483649}',
        b'{"version":[]}',
        b'{"flag":{}}',
        b'{"code":' + b"9" * 5000 + b"}",
        b'{"remark":5}',
        b'{"extFields":[]}',
        b'{"extFields":"a"}',
        b'{"extFields":{"a":{}}}',
        b'{"extFields":{"a":["b"]}}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"extFields":{"a":"\\ud800"}}',
        b'{"x":[[[[1]]]]}',
        b'{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"x":' + b'{"x":' * 5_000,
        b'{"code":1}{"code":2}',
        b"{0:1}",
    ],
    ids=lambda header: header[:24].decode("latin-1"),
)
def test_json_headers_that_are_refused(header: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_header(JSON_HEADER, header)


def binary_header(remark_size: int = 0, map_size: int | None = None, block: bytes = b"") -> bytes:
    fixed = bytes.fromhex("0069 03 0199 00000007 00000000") + remark_size.to_bytes(4, "big")
    size = len(block) if map_size is None else map_size
    return fixed + size.to_bytes(4, "big") + block


@pytest.mark.parametrize(
    "header",
    [
        b"",
        binary_header()[:20],
        binary_header() + b"x",
        binary_header(remark_size=1),
        binary_header(remark_size=0xFFFFFFFF),
        binary_header(remark_size=0x7FFFFFFF),
        binary_header(map_size=1),
        binary_header(map_size=0xFFFFFFFF),
        binary_header(block=b"\x00"),
        binary_header(block=b"\x00\x01a"),
        binary_header(block=b"\x00\x01a\x00\x00\x00\x02b"),
        binary_header(block=b"\xff\xffa\x00\x00\x00\x01b"),
        binary_header(block=b"\x00\x01a\xff\xff\xff\xffb"),
        binary_header(block=b"\x00\x01\xff\x00\x00\x00\x01b"),
        binary_header(block=b"\x00\x01a\x00\x00\x00\x01\xff"),
    ],
    ids=lambda header: f"{len(header)}-{header[-6:].hex()}",
)
def test_binary_headers_that_are_refused(header: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        decode_header(BINARY_HEADER, header)


def test_empty_values_of_binary_headers_are_empty_texts() -> None:
    header = binary_header(block=b"\x00\x01a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01b")
    assert decode_header(BINARY_HEADER, header).ext == {"a": "", "": "b"}
    assert decode_header(BINARY_HEADER, memoryview(binary_header())).remark is None


def test_unknown_serialize_types_are_refused() -> None:
    with pytest.raises(ProtocolViolation):
        decode_header(2, b"{}")
    with pytest.raises(InvalidArgument):
        encode_command(RemotingCommand(1, serialize_type=2))


# What we refuse to write


@pytest.mark.parametrize(
    "command",
    [
        RemotingCommand(1, {"queueId": 0}),  # type: ignore[dict-item]
        RemotingCommand(1, {"a": None}),  # type: ignore[dict-item]
        RemotingCommand(1, {"a": "\ud800"}),
        RemotingCommand(1, {1: "a"}),  # type: ignore[dict-item]
        RemotingCommand(1, language=99),
        RemotingCommand(RequestCode.POP_MESSAGE, serialize_type=BINARY_HEADER),
        RemotingCommand(1, {"a": 1}, serialize_type=BINARY_HEADER),  # type: ignore[dict-item]
        RemotingCommand(1, {"a": "\ud800"}, serialize_type=BINARY_HEADER),
        RemotingCommand(1, {"k" * 40_000: "v"}, serialize_type=BINARY_HEADER),
        RemotingCommand(1, opaque=1 << 31, serialize_type=BINARY_HEADER),
        RemotingCommand(1, {"k": "v" * (1 << 24)}),
    ],
    ids=lambda command: f"{command.serialize_type}-{str(command.ext)[:20]}-{command.language}",
)
def test_commands_that_no_peer_could_read(command: RemotingCommand) -> None:
    with pytest.raises(InvalidArgument):
        encode_command(command)


def test_half_characters_in_a_remark_do_not_hide_the_error() -> None:
    for serialize_type in (JSON_HEADER, BINARY_HEADER):
        command = RemotingCommand(1, remark="bad \ud800 name", serialize_type=serialize_type)
        assert parse_one(frame_bytes(command)).remark == "bad ? name"


def test_codes_beyond_16_bits_travel_in_json() -> None:
    assert parse_one(frame_bytes(RemotingCommand(RequestCode.POP_MESSAGE))).code == 200050
