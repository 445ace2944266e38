"""What `produce` takes: texts, bytes, dictionaries, frames; and what it refuses."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import numpy as np
import pytest

from broker_core import OutgoingMessage
from broker_core.errors import InvalidArgument
from broker_core.notebook.message_rows import SharedFields, outgoing_messages

SHARED = SharedFields("t", tags="T", keys="K", properties={"p": "1"})


def sent(messages: object, shared: SharedFields = SHARED) -> list[OutgoingMessage]:
    return list(outgoing_messages(messages, shared))


def bodies(messages: object) -> list[bytes]:
    return [message.body for message in sent(messages)]


def test_texts_bytes_and_json() -> None:
    given = ["é", b"\xff", bytearray(b"a"), memoryview(b"b"), {"id": 1, "é": None}, [1, 2]]
    expected = ["é".encode(), b"\xff", b"a", b"b", '{"id":1,"é":null}'.encode(), b"[1,2]"]
    assert bodies(given) == expected
    assert bodies(iter(given)) == expected
    assert bodies(text for text in ("a", "b")) == [b"a", b"b"]


def test_fields_of_all_messages() -> None:
    assert sent(["a"]) == [OutgoingMessage("t", b"a", "T", "K", {"p": "1"})]
    [delayed] = sent(["a"], SharedFields("t", delay_ms=5))
    assert delayed.delay_ms == 5


def test_values_of_json() -> None:
    row = {
        "day": datetime.date(2024, 5, 31),
        "price": decimal.Decimal("1.50"),
        "id": uuid.UUID(int=1),
        "count": np.int64(3),
        "list": np.array([1, 2]),
    }
    expected = (
        b'{"day":"2024-05-31","price":"1.50","id":"00000000-0000-0000-0000-000000000001",'
        b'"count":3,"list":[1,2]}'
    )
    assert bodies([row]) == [expected]


def test_a_dictionary_of_message_fields_is_a_row() -> None:
    row = {"value": {"id": 1}, "key": "k", "tags": "g", "properties": {"q": 2}, "delay_level": 3}
    [message] = sent([row])
    assert message == OutgoingMessage("t", b'{"id":1}', "g", "k", {"p": "1", "q": "2"}, 3)
    [plain] = sent([{"value": 1, "unit": "kg"}])
    assert plain.body == b'{"value":1,"unit":"kg"}'
    assert plain.keys == "K"
    assert sent([OutgoingMessage("other", b"x", keys="own")])[0][:4] == ("t", b"x", "", "own")


@pytest.mark.parametrize("kind", ["pandas", "arrow", "batch", "reader", "polars", "lazy"])
def test_frames(kind: str) -> None:
    columns = {"value": ["a", "b"], "key": ["k", None], "tags": [None, "g"]}
    messages = sent(_frame(kind, columns))
    assert [(m.body, m.keys, m.tags) for m in messages] == [(b"a", "k", "T"), (b"b", "K", "g")]
    rows = {"id": [1, 2], "price": [1.5, None], "key": ["x", "y"]}
    messages = sent(_frame(kind, rows))
    assert [m.body for m in messages] == [b'{"id":1,"price":1.5}', b'{"id":2,"price":null}']
    assert [m.keys for m in messages] == ["x", "y"]


def _frame(kind: str, columns: dict[str, list[Any]]) -> Any:
    if kind == "pandas":
        import pandas

        return pandas.DataFrame(columns)
    if kind in ("polars", "lazy"):
        import polars

        frame = polars.DataFrame(columns)
        return frame.lazy() if kind == "lazy" else frame
    import pyarrow

    table = pyarrow.table(columns)
    if kind == "reader":
        return table.to_reader()
    return table.to_batches()[0] if kind == "batch" else table


def test_columns_of_frames() -> None:
    import pandas
    import polars
    import pyarrow

    for column in (pandas.Series(["a"]), polars.Series(["a"]), pyarrow.array(["a"])):
        assert bodies(column) == [b"a"]
    properties = pyarrow.array([[("q", "2")]], pyarrow.map_(pyarrow.string(), pyarrow.string()))
    [message] = sent(pyarrow.table({"value": [b"v"], "properties": properties}))
    assert message.properties == {"p": "1", "q": "2"}
    [timed] = sent(pandas.DataFrame({"value": ["v"], "delay_ms": [1500]}))
    assert (timed.delay_ms, type(timed.delay_ms)) == (1500, int)


@pytest.mark.parametrize("one", ["text", b"bytes", bytearray(b"b"), {"id": 1}])
def test_one_message_is_not_a_list(one: object) -> None:
    with pytest.raises(InvalidArgument, match=r"several messages, and .* is one: put it into a"):
        outgoing_messages(one, SHARED)


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (7, "an int is not a list"),
        (None, "^None is not a list"),
        (["a", 7], r"message 1 is an int, .* str\(…\)"),
        ([None], "message 0 is None: leave it out"),
        ([("k", "v")], "message 0 is a tuple"),
        ([float("nan")], "message 0 is nan: leave it out"),
        ([{"a": float("nan")}], "message 0 cannot be written as JSON: JSON has no NaN"),
        ([np.int64(7)], r"message 0 is an int64, .* str\(…\)"),
        (["a", "\ud800"], r"message 1 cannot be written as UTF-8: '\\ud800' is half"),
        ([{"a": "\udfff"}], r"message 0 cannot be written as UTF-8: '\\udfff' is half"),
        ([{"a": object()}], "an object has no JSON form"),
        ([{"value": None}], "message 0 is None: leave it out"),
        ([{"value": "a", "properties": 7}], "properties=7 is no dictionary"),
        (
            ["a", {"value": "b", "delay_ms": "soon"}],
            "message 1: delay_ms='soon' is no whole number",
        ),
        ([{"value": "a", "delay_ms": 1.5}], "message 0: delay_ms=1.5 is no whole number"),
        ([{"value": "a", "delay_level": [1]}], r"message 0: delay_level=\[1\] is no whole number"),
    ],
)
def test_what_is_refused(messages: object, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        sent(messages)


def test_two_columns_with_one_name() -> None:
    import pandas
    import pyarrow

    twice = pandas.DataFrame([["a", "b"]], columns=["x", "x"])
    for frame in (
        twice,
        pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2])], names=["x", "x"]),
        pandas.DataFrame([["a", "b"]], columns=[1, "1"]),
    ):
        with pytest.raises(InvalidArgument, match=r"there are two columns '[x1]'"):
            sent(frame)
    both = pandas.DataFrame({"value": ["a"], "key": ["k"], "keys": ["l"]})
    with pytest.raises(InvalidArgument, match="there are two columns 'keys'"):
        sent(both)


def test_an_unknown_column_beside_a_value() -> None:
    import pandas

    with pytest.raises(InvalidArgument, match=r"column 'colour' is none of .*rename it"):
        sent(pandas.DataFrame({"value": ["a"], "colour": ["red"]}))
