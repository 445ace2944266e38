"""Wire forms of the sink: there and back, and nothing else is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies import sink_messages as messages
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    Publication,
    PublishAnswer,
    SinkNote,
    SinkStatus,
)
from broker_core.errors import InvalidArgument, RmqError

_texts = st.text(st.characters(codec="utf-8").filter(str.isprintable), min_size=1, max_size=20)
_maybe = st.one_of(st.just(""), _texts)
_numbers = st.integers(0, (1 << 63) - 1)
_identities = st.builds(
    BatchIdentity, _texts, _numbers, _texts, _maybe, _maybe, st.booleans(), _maybe
)
# The wire form has no broker name.
_parts = st.lists(
    st.builds(StagedPart, _texts, _numbers, _numbers, _numbers, st.just("")), max_size=3
).map(tuple)
_others = st.lists(_texts, max_size=3).map(tuple)
_decisions = st.lists(st.tuples(_numbers, _numbers, _maybe), max_size=3).map(tuple)
_phases = st.sampled_from(["", "reserve", "prepare", "decide", "complete"])
_offsets = st.dictionaries(
    _texts, st.dictionaries(st.integers(0, 1 << 31), st.tuples(_numbers, _numbers), max_size=3),
    max_size=3,
)  # fmt: skip


@given(st.builds(Publication, _identities, _parts, _phases, _numbers, _others, _decisions, _maybe))
def test_publications(publication: Publication) -> None:
    assert messages.parse_publication(messages.encode_publication(publication)) == publication


@given(
    st.builds(
        PublishAnswer, st.booleans(), _numbers, _offsets, _numbers, _others, _numbers, _decisions,
        _maybe, _maybe,
    )
)  # fmt: skip
def test_answers(answer: PublishAnswer) -> None:
    assert messages.parse_publish_answer(messages.encode_publish_answer(answer)) == answer


@given(
    st.builds(
        SinkStatus, st.booleans(), st.integers(-1, 1 << 40), _maybe, _maybe, _maybe, _numbers,
        st.booleans(), _maybe, _maybe, _maybe, _numbers,
    )
)  # fmt: skip
def test_statuses(status: SinkStatus) -> None:
    assert messages.parse_status(messages.encode_status(status)) == status


@given(
    st.sampled_from(["batch", "part", "run", "reserve", "prepare"]),
    _identities,
    st.integers(1, 1 << 40),
    _others,
    _parts,
    _maybe,
)
def test_notes(
    kind: str, who: BatchIdentity, token: int, others: Any, parts: Any, name: str
) -> None:
    for note in (SinkNote(kind, who), SinkNote(kind, who, token, others, parts, name)):
        assert messages.parse_note(messages.encode_note(note)) == note


def test_messages_of_earlier_versions() -> None:
    """They name neither queries nor attempts."""
    found = messages.parse_publication(json.dumps({**GOOD, "decided": [[3, 1]]}).encode())
    assert (found.identity.query, found.attempt, found.decided) == ("", "", ((3, 1, ""),))
    note = messages.parse_note(b"RMQS" + json.dumps({**GOOD, "kind": "reserve"}).encode())
    assert note == SinkNote("reserve", BatchIdentity("S", 0, "r"))


@pytest.mark.parametrize(
    ("known", "asked", "is_same"),
    [
        ("", "rows:1:2:a", True),
        ("rows:1:2:a", "", True),
        ("rows:1:2:a", "rows:1:2:a", True),
        ("rows:1:2:a", "rows:1:2:b", False),
        ("rows:1:2:a", "rows:1:3:a", False),
        # If both have the range of offsets, it decides, independent of the rows.
        ("offsets:x rows:1:2:a", "offsets:x rows:3:9:b", True),
        ("offsets:x rows:1:2:a", "offsets:y rows:1:2:a", False),
        ("offsets:x rows:1:2:a", "rows:1:2:a", True),
        ("offsets:x rows:1:2:a", "rows:1:2:b", False),
        # Earlier versions
        ("rows:1:2", "offsets:x rows:1:2:a", True),
        ("rows:1:3", "offsets:x rows:1:2:a", False),
        ("offsets:x", "offsets:x rows:1:2:a", True),
        ("offsets:x", "rows:1:2:a", False),
        # Other identities of a writer are compared as they are.
        ("rows 1", "rows 1", True),
        ("rows 1", "rows 2", False),
        ("rows:", "rows:1", False),
    ],
)
def test_which_content_is_the_same(known: str, asked: str, is_same: bool) -> None:
    assert messages.is_same_content(known, asked) is is_same


def test_notes_of_others_and_of_the_future() -> None:
    note = messages.encode_note(SinkNote("run", BatchIdentity("S", -1, "r")))
    assert messages.parse_note(b"something") is None
    assert messages.parse_note(b"") is None
    for changed in (
        note.replace(b'"v":1', b'"v":2'),
        note.replace(b'"run","', b'"new","').replace(b'"kind":"run"', b'"kind":"new"'),
        note[:-1],
    ):
        with pytest.raises(InvalidArgument):
            messages.parse_note(changed)


GOOD: dict[str, Any] = {"v": 1, "sink": "S", "batch": 0, "run": "r"}


@pytest.mark.parametrize(
    "change",
    [
        {"v": 0}, {"v": "1"}, {"sink": ""}, {"sink": None}, {"sink": "a\nb"}, {"sink": "x" * 513},
        {"batch": -1}, {"batch": 1.5}, {"batch": True}, {"batch": 1 << 63}, {"run": 7},
        {"lineage": ["x"]}, {"content": "\x00"}, {"once": 1}, {"parts": {}}, {"parts": [[]]},
        {"parts": [["id", 1, 2]]}, {"parts": [["id", 1, 2, -1]]}, {"parts": [[5, 1, 2, 3]]},
        {"parts": [["id", 1, 2, True]]}, {"parts": [["id", 1, 2, 3]] * 10_001},
        {"phase": "other"}, {"phase": 1}, {"token": -1}, {"others": "x"}, {"others": [1]},
        {"others": ["x"] * 1_001}, {"decided": [[1]]}, {"decided": [["a", "b"]]},
        {"decided": [[1, 2, 3]]}, {"decided": [7]}, {"attempt": 1}, {"attempt": "a\nb"},
        {"query": "\x00"},
    ],
)  # fmt: skip
def test_publications_that_make_no_sense(change: dict[str, Any]) -> None:
    messages.parse_publication(json.dumps(GOOD).encode())
    with pytest.raises(InvalidArgument):
        messages.parse_publication(json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize(
    "parse",
    [
        messages.parse_publication, messages.parse_publish_answer, messages.parse_status,
        messages.parse_ids, lambda data: messages.parse_note(b"RMQS" + data),
        messages.parse_block,
    ],
)  # fmt: skip
@given(data=st.one_of(st.binary(max_size=200), st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["v", "sink", "batch", "parts", "offsets", "ids", "repeat"]),
                      inner, max_size=4),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())))  # fmt: skip
def test_any_bytes_are_read_or_refused(parse: Callable[[bytes], Any], data: bytes) -> None:
    try:
        parse(data)
    except RmqError as error:
        assert isinstance(error, InvalidArgument)


def test_ids() -> None:
    assert messages.parse_ids(messages.encode_ids(["a", "b"])) == ["a", "b"]
    for wrong in ([1], ["x"] * 100_001):
        with pytest.raises(InvalidArgument):
            messages.parse_ids(json.dumps({"v": 1, "ids": wrong}).encode())


def test_block_heads() -> None:
    queues = ((b"T", 0), (b"Topic-2", 0x7FFFFFFF))
    assert messages.parse_block(messages.block_head(queues) + b"records") == (queues, b"records")
    for wrong in ((), tuple((b"T", n) for n in range(5_000))):
        with pytest.raises(InvalidArgument):
            messages.block_head(wrong)
