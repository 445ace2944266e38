"""The JSON of RocketMQ's Java side: what it reads, what it refuses, what it writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.json.dialect import (
    RawKeyMap,
    emit_json,
    key_fields,
    parse_json,
    parse_object,
)
from broker_core.errors import InvalidArgument, MalformedJson
from broker_core.protocol_codes import BrokerRole, ResponseCode

QUEUE = {"brokerName": "b", "queueId": 0, "topic": "T"}
QUEUE_KEY = (("brokerName", "b"), ("queueId", 0), ("topic", "T"))


def parsed(text: str, **limits: Any) -> Any:
    return parse_json(text.encode(), **limits)


def followed(text: str) -> Any:
    return parsed(text, references=True)


# The five features


def test_integer_keys_without_quotes() -> None:
    text = '{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911", -7 : 2}}'
    expected = {"brokerAddrs": {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911", "-7": 2}}
    assert parsed(text) == expected
    assert parsed('{"brokerAddrs":{"0":"10.0.0.1:10911"}}')["brokerAddrs"]["0"] is not None


def test_digits_inside_strings_stay_strings() -> None:
    assert parsed('{0:"{1:2,3:4}","5:":"a"}') == {"0": "{1:2,3:4}", "5:": "a"}


def test_objects_as_keys() -> None:
    text = '{"offsetTable":{{"topic":"T","queueId":0,"brokerName":"b"}:{"maxOffset":3}}}'
    assert parsed(text) == {"offsetTable": {QUEUE_KEY: {"maxOffset": 3}}}
    (key,) = parsed(text)["offsetTable"]
    assert key_fields(key) == QUEUE


def test_objects_as_keys_written_as_strings() -> None:
    text = '{"{\\"brokerName\\":\\"b\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}":7}'
    (key,) = parsed(text)
    assert key_fields(key) == QUEUE
    for bad in ("7", "[]", "{"):
        with pytest.raises(MalformedJson):
            key_fields(bad)


def test_keys_of_keys_and_lists_are_hashable() -> None:
    found = parsed('{{"a":[1,{"b":2}],"c":{{"d":1}:2}}:3}')
    assert list(found.values()) == [3]
    hash(next(iter(found)))


def test_references() -> None:
    found = followed('{"a":{"b":[{"x":1},2]},"c":{"$ref":"$.a.b[0]"},"d":[{"$ref":"$.a"}]}')
    assert found["c"] == {"x": 1}
    assert found["c"] is found["a"]["b"][0]
    assert found["d"][0] is found["a"]


def test_references_to_names_with_special_characters() -> None:
    assert followed('{"a-b":{"%R%.g":[1]},"c":{"$ref":"$.a\\\\-b.\\\\%R\\\\%\\\\.g"}}')["c"] == [1]
    assert followed('{"a.b":[1],"c":{"$ref":"$[\'a.b\']"}}')["c"] == [1]
    assert followed('{"t":{0:[1]},"c":{"$ref":"$.t[0]"}}')["c"] == [1]


def test_references_of_references() -> None:
    found = followed('{"a":[1],"b":{"$ref":"$.c"},"c":{"$ref":"$.a"}}')
    assert found == {"a": [1], "b": [1], "c": [1]}


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":"$.a"}}',
        '{"a":{"$ref":"$.b"},"b":{"$ref":"$.a"}}',
        '{"a":{"b":{"$ref":"$.a"}}}',
        '{"a":[{"$ref":"$.b"}],"b":[{"$ref":"$.a"}]}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"@"}}',
        '{"a":{"$ref":"$.missing"}}',
        '{"a":[],"b":{"$ref":"$.a[0]"}}',
        '{"a":[1],"b":{"$ref":"$.a[-1]"}}',
        '{"a":[1],"b":{"$ref":"$.a[99999999999999999999]"}}',
        '{"a":{"$ref":5}}',
        '{"a":{"$ref":"$x"}}',
        '{"$ref":"$"}',
        '{"a":{"\\u0024ref":"$"}}',
    ],
)
def test_references_that_lead_nowhere_or_in_circles(text: str) -> None:
    with pytest.raises(MalformedJson):
        followed(text)


def test_references_that_unfold_without_end() -> None:
    doubling = ",".join(
        f'"{level}":[{{"$ref":"$.{level - 1}"}},{{"$ref":"$.{level - 1}"}}]'
        for level in range(1, 25)
    )
    with pytest.raises(MalformedJson, match="unfold"):
        followed('{"0":[1,1],' + doubling + "}")
    chain = ",".join(f'"{level}":[{{"$ref":"$.{level + 1}"}}]' for level in range(5_000))
    with pytest.raises(MalformedJson, match="unfold"):
        followed("{" + chain + ',"5000":1}')


def test_references_cannot_repeat_a_long_text() -> None:
    """The unfolded size of a text is bounded by its own size, for any content."""
    long = "x" * 10_000
    repeated = ",".join(['{"$ref":"$.a"}'] * 1_000)
    with pytest.raises(MalformedJson, match="unfold"):
        followed(f'{{"a":["{long}"],"b":[{repeated}]}}')
    with pytest.raises(MalformedJson, match="no object or array"):
        followed(f'{{"a":"{long}","b":[{{"$ref":"$.a"}}]}}')
    # What fastjson writes for a short object in many places is read.
    assert len(followed(f'{{"a":[1],"b":[{repeated}]}}')["b"]) == 1_000


def test_references_are_followed_only_where_they_are_expected() -> None:
    text = '{"a":[1],"b":{"$ref":"$.a"}}'
    assert parsed(text) == {"a": [1], "b": {"$ref": "$.a"}}
    assert followed(text)["b"] == [1]
    for known in (parsed, followed):
        assert known('{"a":"{\\"$ref\\":\\"$.b\\"}"}') == {"a": '{"$ref":"$.b"}'}


def test_a_type_name_is_just_a_string() -> None:
    text = '{"@type":"com.sun.rowset.JdbcRowSetImpl","dataSourceName":"ldap://x","autoCommit":true}'
    assert parsed(text)["@type"] == "com.sun.rowset.JdbcRowSetImpl"


# Standard JSON

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_both_readers_read_standard_json(value: Any) -> None:
    for text in (json.dumps(value), json.dumps(value, indent=1, ensure_ascii=False)):
        assert parsed(text) == value
        # `unique_keys` never takes the fast path.
        assert parsed(text, unique_keys=True) == value


def test_memoryviews_are_read() -> None:
    assert parse_json(memoryview(b"{0:1}")) == {"0": 1}


BAD_TEXTS = [
    "",
    " ",
    "{",
    "}",
    "[1,]",
    '{"a":1,}',
    '{"a"}',
    "{a:1}",
    "{'a':1}",
    "{1.5:1}",
    "{null:1}",
    "{[1]:1}",
    "{0:1}x",
    "{0:NaN}",
    "{0:Infinity}",
    "{0:-Infinity}",
    "NaN",
    "{0:1e999}",
    "{0:01}",
    "{0:+1}",
    "{0:.5}",
    "{0:1.}",
    "{0:tru}",
    "{0:truex}",
    '{0:"a}',
    '{0:"\t"}',
    '{0:"\\x41"}',
    '{0:"\\ud800"}',
    "{0:" + "9" * 5_000 + "}",
    "{" + "9" * 30 + ":1}",
    "{0:1 1:2}",
    "{00:1}",
    "{0:[1 2]}",
    "{{}",
    "{{}:",
    "{{} 1}",
    "\ufeff{}",
]


@pytest.mark.parametrize("text", BAD_TEXTS, ids=lambda text: text[:20])
@pytest.mark.parametrize("unique_keys", [False, True])
def test_what_is_refused(text: str, unique_keys: bool) -> None:
    with pytest.raises(MalformedJson):
        parsed(text, unique_keys=unique_keys)


def test_bytes_that_are_not_utf8() -> None:
    for data in (b'{"a":"\xff"}', b'{0:"\xc3"}', b'{"a":"\xed\xa0\x80"}'):
        with pytest.raises(MalformedJson):
            parse_json(data)


def test_numbers() -> None:
    assert parsed("{0:9223372036854775807}")["0"] == 9223372036854775807
    assert type(parsed("{0:0}")["0"]) is int
    assert parsed("{0:-1.5e2}")["0"] == -150.0
    # Neither reader keeps more than 64 bits.
    for text in ('{"0":123456789012345678901}', "{0:123456789012345678901}"):
        assert type(parsed(text)["0"]) is float
    with pytest.raises(MalformedJson):
        parsed('{"0":' + "9" * 5_000 + "}")


# Limits


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:", "{"])
@pytest.mark.parametrize("depth", [33, 1_000, 100_000])
def test_deep_texts(opening: str, depth: int) -> None:
    closing = "]" if opening == "[" else "}"
    for text in (opening * depth, opening * depth + "1" + closing * depth):
        with pytest.raises(MalformedJson):
            parsed(text)


def test_depth_is_inclusive() -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}"), ("{0:", "}")):
        assert parsed(opening * 32 + "1" + closing * 32) is not None
        with pytest.raises(MalformedJson, match="deeper"):
            parsed(opening * 33 + "1" + closing * 33)


def test_sizes_and_counts() -> None:
    with pytest.raises(MalformedJson, match="at most 10"):
        parsed('"123456789"', size_max=10)
    assert parsed("[1,2,3]", values_max=4) == [1, 2, 3]
    with pytest.raises(MalformedJson, match="values"):
        parsed("[1,2,3]", values_max=3)
    with pytest.raises(MalformedJson, match="values"):
        parsed("[" + "[]," * 1_000_001 + "[]]")
    with pytest.raises(MalformedJson, match="values"):
        parsed("{" + ",".join(f'"{key}":1' for key in range(1_000_001)) + "}")


def test_texts_made_to_take_long() -> None:
    for text in (
        '{0:"' + '\\"' * 300_000,
        '{0:"' + '\\"' * 300_000 + "\\",
        "{0:" + '"' * 300_001,
        "{0:" + " " * 300_000,
        "{" + "1" * 300_000,
        "{0" + " " * 300_000,
        '{{"a":"' + "b" * 300_000,
    ):
        with pytest.raises(MalformedJson):
            parsed(text)
    with pytest.raises(MalformedJson, match="not standard"):
        parsed('{{"a":1}:[' + "1," * 100_000 + "1]}")
    numbers = parsed("{" + ",".join(f"{key}:1" for key in range(200_000)) + "}")
    assert len(numbers) == 200_000


def test_object_keys_whose_hashes_a_sender_can_predict() -> None:
    """Thousands of them in one object took seconds: each is compared with all before it."""
    equal = [2.0 ** (61 * power) for power in range(-16, 17)]
    assert len({hash(number) for number in equal}) == 1
    entries = [f'{{"a":{a!r},"b":{b!r}}}:1' for a in equal for b in equal]
    with pytest.raises(MalformedJson, match="object keys with one hash"):
        parse_json(f"{{{','.join(entries)}}}".encode())
    nested = [f'{{"k":{{"a":{a!r},"b":{b!r}}}}}:1' for a in equal for b in equal]
    with pytest.raises(MalformedJson, match="object keys with one hash"):
        parse_json(f"{{{','.join(nested)}}}".encode())
    queues = ",".join(f'{{"queueId":{queue},"topic":"T"}}:1' for queue in range(5_000))
    assert len(parse_json(f"{{{queues}}}".encode())) == 5_000


def test_equal_keys() -> None:
    # As fastjson does, except in texts that decide about permissions.
    for text in ('{"a":1,"a":2}', '{0:1,"0":2,"a":2}'):
        assert 2 in parsed(text).values()
        with pytest.raises(MalformedJson, match="twice"):
            parsed(text, unique_keys=True)
    with pytest.raises(MalformedJson, match="twice"):
        parsed('{{"a":1,"b":2}:1,{"b":2,"a":1}:1}', unique_keys=True)


@given(st.text(alphabet='{}[]:,"0123456789$ref.ab\\ \n-+eE', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for unique_keys in (False, True):
        try:
            parsed(text, unique_keys=unique_keys, references=not unique_keys)
        except MalformedJson:
            continue


# Writing


def test_compact_with_quoted_integer_keys() -> None:
    route = {
        "brokerDatas": [
            {"brokerAddrs": {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}, "cluster": "C"}
        ],
        "filterServerTable": {},
        "queueDatas": [],
    }
    assert emit_json(route) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"cluster":"C"}],'
        b'"filterServerTable":{},"queueDatas":[]}'
    )


def test_raw_object_keys() -> None:
    table = RawKeyMap([(QUEUE, 123), ({**QUEUE, "queueId": 1}, {"maxOffset": 3})])
    text = (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:123,'
        b'{"brokerName":"b","queueId":1,"topic":"T"}:{"maxOffset":3}}}'
    )
    assert emit_json({"offsetTable": table}) == text
    assert parse_json(text)["offsetTable"][QUEUE_KEY] == 123
    assert emit_json(RawKeyMap([])) == b"{}"


def test_nulls_enums_sets_and_scalars() -> None:
    value = {
        "none": None,
        "list": [None, True, False],
        "set": {"b", "a"},
        "role": BrokerRole.SLAVE,
        "code": ResponseCode.SYSTEM_BUSY,
        BrokerRole.SLAVE: 1,
        "tuple": (1, 2.5, -3),
        "empty": [],
        "nothing": {"a": None},
    }
    assert emit_json(value) == (
        b'{"list":[null,true,false],"set":["a","b"],"role":"SLAVE","code":"SYSTEM_BUSY","SLAVE":1,'
        b'"tuple":[1,2.5,-3],"empty":[],"nothing":{}}'
    )


def test_characters() -> None:
    assert emit_json({"a": 'ü"\\\n\x00😀'}) == '{"a":"ü\\"\\\\\\n\\u0000😀"}'.encode()
    assert emit_json({"ü": "😀"}, ascii_only=True) == b'{"\\u00fc":"\\ud83d\\ude00"}'


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        {"a": float("-inf")},
        b"bytes",
        {1.5: 1},
        {None: 1},
        {(1,): 1},
        ...,
        "\ud800",
    ],
    ids=repr,
)
def test_what_cannot_be_written(value: object) -> None:
    with pytest.raises(InvalidArgument):
        emit_json(value)


def test_endless_values_are_refused() -> None:
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(InvalidArgument):
        emit_json(endless)


@given(VALUES)
def test_what_is_written_can_be_read(value: Any) -> None:
    def without_null_fields(found: Any) -> Any:
        if isinstance(found, dict):
            return {k: without_null_fields(v) for k, v in found.items() if v is not None}
        if isinstance(found, list):
            return [without_null_fields(item) for item in found]
        return found

    for ascii_only in (False, True):
        text = emit_json(value, ascii_only=ascii_only)
        assert json.loads(text) == without_null_fields(value)


def test_a_body_is_an_object() -> None:
    assert parse_object(b'{"a":{"b":1},"c":{"$ref":"$.a"}}', references=True)["c"] == {"b": 1}
    assert parse_object(b'{"c":{"$ref":"$.a"}}') == {"c": {"$ref": "$.a"}}
    assert parse_object(b"null") == {}
    for body in (b"[1]", b"1", b'"a"', b"{", b"", b'{{"topic":"T"}:1}'):
        with pytest.raises((InvalidArgument, MalformedJson)):
            parse_object(body)
