"""A sink belongs to one query, in the files and messages of every version."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from broker_core.broker.sink.sink_record import parse_sink, sink_object
from broker_core.codec.wire.bodies.sink_messages import (
    COMPLETE,
    DECIDE,
    PREPARE,
    RESERVE,
    Publication,
)
from broker_core.errors import SinkContentDiffers, SinkFenced
from tests.broker.sink_store import SinkStore, identity


def of(query: str, batch: int = 0, run: str = "", **fields: Any) -> Any:
    return identity(batch, run or f"run-of-{query}", query=query, **fields)


def test_another_query_is_refused_before_it_stages_anything() -> None:
    sinks = SinkStore()
    sinks.write(of("Q1"), [b"a"])
    with pytest.raises(SinkFenced, match=r"belongs to query Q1, .* batch 0 last, not to query Q2"):
        sinks.stage(of("Q2"), [b"b"])
    assert sinks.staged_files == []
    # It has not replaced the run of the first one by that.
    sinks.write(of("Q1", 1), [b"c"])
    for later in (sinks.restart(), sinks.killed()):
        assert later.batches.status("S").query == "Q1"
        with pytest.raises(SinkFenced, match="query Q2"):
            later.publish(of("Q2", 5))
        sinks = later
    assert sinks.bodies() == [b"a", b"c"]


def test_a_query_that_published_nothing_has_the_sink_too() -> None:
    sinks = SinkStore()
    sinks.stage(of("Q1"), [b"a"])
    with pytest.raises(SinkFenced, match="batch -1 last, not to query Q2"):
        sinks.stage(of("Q2"), [b"a"])


def test_the_query_is_named_before_the_checkpoint() -> None:
    sinks = SinkStore()
    sinks.write(of("Q1", lineage="/c1"), [b"a"])
    with pytest.raises(SinkFenced, match="query Q2"):
        sinks.stage(of("Q2", lineage="/c2"), [b"b"])
    with pytest.raises(SinkFenced, match="copied checkpoint"):
        sinks.stage(of("Q1", lineage="/c2"), [b"b"])


def test_a_sink_of_an_earlier_version_is_taken_by_the_first_query() -> None:
    sinks = SinkStore()
    sinks.write(identity(0, "run-1", content="rows:1:1"), [b"a"])
    # A repeat is compared as that version did; the digest is new.
    assert sinks.write(of("Q1", content="rows:1:1:00"), [b"a"]).is_repeat
    with pytest.raises(SinkContentDiffers):
        sinks.write(of("Q1", content="rows:1:2:00"), [b"bb"])
    with pytest.raises(SinkFenced, match="query Q2"):
        sinks.stage(of("Q2"), [b"b"])


def test_a_file_of_an_earlier_version() -> None:
    old: dict[str, Any] = {
        "runs": ["run-1"],
        "lineage": "/c",
        "once": False,
        "time": 5,
        "coordinator": True,
        "decidedBy": "",
        "reserved": [4, 9],
        "prepared": [["S", 4, "run-1", "/c", "rows:1:1", False], 9, [["id", 1, 2, 3]], 7],
        "decisions": [[-1, 0, -1], [3, 8, 6]],
        "batches": [[3, "run-1", "rows:1:1", 6, 100, 200, 8, ["broker-b"]]],
    }
    sink = parse_sink(old)
    assert sink.reserved == (4, 9, "")
    assert sink.prepared is not None
    assert sink.prepared.key == (4, 9, "")
    assert sink.batches[0].others == ("broker-b",)
    assert [made.attempt for made in sink.decisions] == ["", ""]
    assert sink.query == ""
    again = json.loads(json.dumps(sink_object(sink)))
    assert sink_object(parse_sink(again)) == again


def test_the_file_remembers_names_and_query() -> None:
    sinks = SinkStore()
    ask = lambda publication: asyncio.run(sinks.publisher.publish(publication))  # noqa: E731
    who = of("Q1")
    part = sinks.stage(who, [b"a"])
    answer = ask(Publication(who, phase=RESERVE))
    attempt = Publication(who, token=answer.reserved, attempt=answer.reserved_attempt)
    sinks = sinks.restart()
    # A client that does not send the name, or an attempt with the same number.
    for other in ("", "0" * 32):
        with pytest.raises(SinkFenced, match="reserved last"):
            ask(attempt._replace(phase=DECIDE, attempt=other, others=("broker-b",)))
    ask(attempt._replace(phase=DECIDE, parts=(part,), others=("broker-b",)))
    repeated = sinks.restart().publish(of("Q1", run="run-2"))
    assert (repeated.is_repeat, repeated.attempt) == (True, answer.reserved_attempt)


def test_a_prepared_part_remembers_its_name() -> None:
    sinks = SinkStore()
    who = of("Q1")
    part = sinks.stage(who, [b"a"])
    prepare = Publication(who, (part,), PREPARE, 3, attempt="name")
    asyncio.run(sinks.publisher.publish(prepare))
    for later in (sinks.restart(), sinks.killed()):
        assert later.batches.status("S").prepared == 3
        sinks = later
    asyncio.run(sinks.publisher.publish(prepare))
    asyncio.run(sinks.publisher.publish(prepare._replace(phase=COMPLETE, parts=())))
    assert sinks.bodies() == [b"a"]
