"""Property texts -> maps, the same as the codec's own reading of each of them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from broker_core.client.produce.outgoing_message import RESERVED_PROPERTIES
from broker_core.codec.records.message_properties import decode_properties
from pyspark_rmq.source.rows.property_map import MAP_TYPE, SYSTEM_PROPERTIES, property_maps

_words = st.text("abAZ é\U0001f600=,", max_size=5)
_texts = st.lists(st.dictionaries(_words, _words, max_size=4), max_size=6)


def _text(pairs: dict[str, str]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


@given(_texts)
def test_equal_to_the_reading_of_each(messages: list[dict[str, str]]) -> None:
    texts = [_text(pairs) for pairs in messages]
    found = property_maps(pa.array(texts, pa.binary()), include_system=True)
    assert found.type == MAP_TYPE
    assert found.null_count == 0
    found.validate(full=True)
    assert [dict(row) for row in found.to_pylist()] == [decode_properties(t) for t in texts]


def test_malformed_property_texts() -> None:
    texts = [
        None,
        b"",
        b"a\x01b",
        b"a\x01b\x02\x02\x01x\x02noval\x01\x02",
        b"x\x01\xff\xfe\x02",
        b"eq\x01a\x01b\x02",
    ]
    found = property_maps(pa.array(texts, pa.binary())).to_pylist()
    assert [dict(row) for row in found] == [
        {},
        {},
        {"a": "b"},
        {"a": "b"},
        {"x": "\ufffd\ufffd"},
        {"eq": "a\x01b"},
    ]


def test_system_properties_are_left_out_unless_asked_for() -> None:
    texts = pa.array([b"UNIQ_KEY\x01U\x02mine\x01M\x02TAGS\x01T\x02"], pa.binary())
    assert property_maps(texts).to_pylist() == [[("mine", "M")]]
    assert len(property_maps(texts, include_system=True).to_pylist()[0]) == 3


def test_a_slice_of_an_array() -> None:
    texts = pa.array([b"a\x01b\x02", b"c\x01d\x02", None], pa.binary())
    assert property_maps(texts.slice(1)).to_pylist() == [[("c", "d")], []]


def test_every_name_that_the_client_keeps_to_itself_is_a_system_one() -> None:
    assert set(SYSTEM_PROPERTIES) >= RESERVED_PROPERTIES
