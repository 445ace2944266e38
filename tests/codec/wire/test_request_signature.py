"""Signatures: RocketMQ's against known values, ours against every change of a request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker_core.codec.wire.request_signature import (
    StrictStamp,
    has_rocketmq_signature,
    parse_strict_auth,
    rocketmq_signature,
    strict_auth,
)

SECRET = b"12345678"
STAMP = StrictStamp(1_700_000_000_000, "0f" * 16, 7)


@pytest.mark.parametrize(
    ("ext", "body", "signature"),
    [
        ({"topic": "T1", "AccessKey": "RocketMQ"}, b"", "vpen6+nTYW8GvuhQzHwBg+mt/oA="),
        (
            {"a": "PG", "b": "T1", "e": "0", "k": "false", "AccessKey": "RocketMQ"},
            b"hi",
            "rl2XsNO4AEChQiaENxIZSQB/PJE=",
        ),
    ],
)
def test_known_signatures(ext: dict[str, str], body: bytes, signature: str) -> None:
    assert rocketmq_signature(SECRET, ext, body) == signature
    assert (
        rocketmq_signature(SECRET, {**ext, "Signature": "anything"}, memoryview(body)) == signature
    )
    assert has_rocketmq_signature(SECRET, {**ext, "Signature": signature}, body)


def test_fields_are_ordered_as_java_orders_them() -> None:
    fields = {"a": "4", "_X": "3", "SecurityToken": "2", "AccessKey": "1"}
    one = {"only": "1234"}
    assert rocketmq_signature(SECRET, fields, b"") == rocketmq_signature(SECRET, one, b"")


@pytest.mark.parametrize("left_out", ["_UNIQUE_KEY_QUERY", "SecurityToken"])
def test_signers_that_leave_a_disputed_field_out_are_accepted(left_out: str) -> None:
    ext = {"AccessKey": "k", "topic": "T", "_UNIQUE_KEY_QUERY": "true", "SecurityToken": "t"}
    for omitted in ((), (left_out,), ("_UNIQUE_KEY_QUERY", "SecurityToken")):
        signature = rocketmq_signature(SECRET, ext, b"", omitted)
        assert has_rocketmq_signature(SECRET, {**ext, "Signature": signature}, b"")
    without_topic = rocketmq_signature(SECRET, ext, b"", ("topic",))
    assert not has_rocketmq_signature(SECRET, {**ext, "Signature": without_topic}, b"")


@pytest.mark.parametrize("given", ["", "x", "vpen6+nTYW8GvuhQzHwBg+mt/oA", "é" * 28, "\ud800"])
def test_a_wrong_signature_is_wrong(given: str) -> None:
    ext = {"topic": "T1", "AccessKey": "RocketMQ", "Signature": given}
    assert not has_rocketmq_signature(SECRET, ext, b"")
    assert not has_rocketmq_signature(SECRET, {"topic": "T1", "AccessKey": "RocketMQ"}, b"")


def test_rocketmqs_signature_does_not_see_what_ours_sees() -> None:
    """The weaknesses for which ours exists: field names and borders are not signed."""
    one, other = {"b": "T1", "c": "23"}, {"b": "T12", "c": "3"}
    assert rocketmq_signature(SECRET, one, b"x") == rocketmq_signature(SECRET, other, b"x")
    assert strict_auth(SECRET, 310, 1, 0, one, b"x", STAMP) != strict_auth(
        SECRET, 310, 1, 0, other, b"x", STAMP
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"code": 215},
        {"opaque": 2},
        {"flag": 2},
        {"ext": {"b": "T", "a": "x"}},
        {"ext": {"a": "T"}},
        {"ext": {"b": "T", "bodyx": ""}},
        {"body": b"other"},
        {"stamp": STAMP._replace(sequence=8)},
        {"stamp": STAMP._replace(time_ms=1)},
        {"stamp": STAMP._replace(session="00" * 16)},
        {"secret": b"another"},
    ],
)
def test_every_part_of_a_request_is_in_our_signature(changed: dict[str, object]) -> None:
    request = {
        "secret": SECRET, "code": 310, "opaque": 1, "flag": 0, "ext": {"b": "T"}, "body": b"body",
        "stamp": STAMP,
    }  # fmt: skip
    signed = strict_auth(**request)  # type: ignore[arg-type]
    assert signed != strict_auth(**{**request, **changed})  # type: ignore[arg-type]
    ignored = {**request["ext"], "Signature": "s", "RmqAuth": "r"}  # type: ignore[dict-item]
    assert signed == strict_auth(**{**request, "ext": ignored})  # type: ignore[arg-type]


_texts = st.text(max_size=4)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(_texts, _texts, max_size=4),
    st.binary(max_size=4),
    st.dictionaries(_texts, _texts, max_size=4),
    st.binary(max_size=4),
)
def test_two_requests_never_share_our_signature(
    ext: dict[str, str], body: bytes, other: dict[str, str], other_body: bytes
) -> None:
    for fields in (ext, other):
        fields.pop("Signature", None)
    is_same = (ext, body) == (other, other_body)
    signed = strict_auth(SECRET, 1, 1, 0, ext, body, STAMP)
    assert (signed == strict_auth(SECRET, 1, 1, 0, other, other_body, STAMP)) == is_same


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":::",
        "1:2",
        f"x:{'0' * 32}:1:sig",
        f"1:{'0' * 31}:1:sig",
        f"1:{'0' * 32}:-1:sig",
        f"{'9' * 19}:{'0' * 32}:1:sig",
        f"١:{'0' * 32}:1:sig",
        "9" * 100_000,
    ],
)
def test_what_is_no_stamp_is_none(text: str) -> None:
    assert parse_strict_auth(text) is None


def test_a_stamp_is_read_back() -> None:
    assert parse_strict_auth(strict_auth(SECRET, 1, 1, 0, {}, b"", STAMP)) == STAMP
