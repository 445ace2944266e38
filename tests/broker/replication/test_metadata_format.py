"""Tables that do not fit into one answer are copied page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_core.broker.replication import metadata_copy as slave_metadata
from broker_core.broker.replication import metadata_format as slave_metadata_format
from broker_core.broker.replication import metadata_requests as processor
from broker_core.broker.replication.metadata_format import join_content, split_content
from broker_core.codec.json.dialect import emit_json, parse_json
from broker_core.errors import RmqError
from broker_core.protocol_codes import RequestCode
from tests.broker.replication.test_metadata_copy import Copied, scenario

__all__ = ["scenario"]

CODE = int(RequestCode.METADATA_CHANGES)


def test_pages_are_the_whole() -> None:
    content = {
        "topics": {
            "dataVersion": {"counter": 1},
            "topicConfigTable": {f"t{n}": {"n": n} for n in range(100)},
        },
        "offsets": {"offsetTable": {}, "removed": {"a@b": [1, 2]}, "logPosition": 7},
        "delays": {},
    }
    for size in (1, 50, 333, 1 << 20):
        pages = split_content(content, size)
        assert len(pages) == 1 or size < 1 << 20
        joined: dict[str, Any] = {}
        for page in pages:
            join_content(joined, parse_json(emit_json(page)))
        assert joined == content
    assert split_content({}) == [{}]


def test_more_commits_than_a_request_takes_and_a_master_that_knows_no_pages(
    scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master of Apache answers no such request, and gets the commits one by one."""
    monkeypatch.setattr(slave_metadata, "COMMITS_PER_REQUEST", 3)

    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, pair.slave)
        ours, theirs = pair.slave.broker.context, pair.master.broker.context
        for number in range(10):
            theirs.groups.find_or_create(f"here-{number}")
            ours.offsets.commit(f"here-{number}", "T", 0, 2)
        del pair.master.broker.router._handlers[CODE]
        assert await pair.metadata.copy_once()
        assert [theirs.offsets.query(f"here-{n}", "T", 0) for n in range(10)] == [2] * 10

    scenario(test)


def test_offsets_and_commits(
    scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_metadata_format.split_content, "__defaults__", (1_000,))
    monkeypatch.setattr(slave_metadata, "COMMITS_PER_REQUEST", 3)

    async def test(pair: Copied) -> None:
        await pair.fill(pair.master, pair.slave)
        ours, theirs = pair.slave.broker.context, pair.master.broker.context
        for number in range(50):
            theirs.offsets.commit(f"group-{number}", "T", 0, 1 + number % 5)
        assert await pair.metadata.copy_once()
        for number in range(50):
            assert ours.offsets.query(f"group-{number}", "T", 0) == 1 + number % 5
        # The other way: what consumers committed here, in several requests.
        for number in range(10):
            ours.offsets.commit(f"here-{number}", "T", 0, 2)
        assert await pair.metadata.copy_once()
        assert [theirs.offsets.query(f"here-{n}", "T", 0) for n in range(10)] == [2] * 10

    scenario(test)


def test_a_snapshot_that_is_gone(
    scenario: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slave_metadata_format.split_content, "__defaults__", (1_000,))
    monkeypatch.setattr(processor, "SNAPSHOTS_MAX", 2)

    async def test(pair: Copied) -> None:
        master = pair.master
        asked = {"brokerName": "broker-a", "paged": "1"}
        first = await master.ask(CODE, **asked)
        assert int(first.ext["pages"]) > 1
        for _ in range(2):
            await master.ask(CODE, **asked)
        answer = await master.ask(CODE, **asked, snapshot=first.ext["snapshot"], page="1")
        assert "has expired" in (answer.remark or "")
        last = await master.ask(CODE, **asked)
        for page in ("0", "-1", "x", "1000000"):
            bad = await master.ask(CODE, **asked, snapshot=last.ext["snapshot"], page=page)
            assert bad.code != 0
        # An older slave does not support pages: it gets everything at once.
        whole = await master.ask(CODE, brokerName="broker-a")
        assert "pages" not in whole.ext
        assert len(whole.body) > len(last.body)
        # A slave whose pages have expired begins again with the next round.
        monkeypatch.setattr(processor, "SNAPSHOTS_MAX", 0)
        with pytest.raises(RmqError, match="has expired"):
            await pair.metadata.copy_once()
        monkeypatch.setattr(processor, "SNAPSHOTS_MAX", 2)
        assert await pair.metadata.copy_once()
        assert pair.slave.broker.context.topics.version == master.broker.context.topics.version

    scenario(test)
