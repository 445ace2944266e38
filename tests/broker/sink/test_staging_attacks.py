"""Requests for direct staging files, from clients that may not use them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.sink import processor as sink_publish
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    BatchIdentity,
    Publication,
    encode_publication,
)
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.access.access_files import ADMIN, WRITER
from tests.broker.protected_cluster import Cluster, cluster
from tests.broker.running_broker import broker_config, running
from tests.broker.sink_store import blocks_of

Run = Callable[..., Any]
BEGIN, APPEND, SEAL = RequestCode.STAGE_BEGIN, RequestCode.STAGE_APPEND, RequestCode.STAGE_SEAL
ROWS = {("Secret", 0): [b"row"] * 10}


async def begun(servers: Cluster, account: dict[str, Any], sink: str) -> str:
    answer = await servers.ask(account, BEGIN, sinkId=sink, batchId="0", runId="r")
    assert answer.code == 0, answer.remark
    assert "root" not in answer.ext
    return answer.ext["stagingId"]


async def publish(servers: Cluster, account: dict[str, Any], sink: str, part: StagedPart) -> int:
    body = encode_publication(Publication(BatchIdentity(sink, 0, "r"), (part,)))
    return (await servers.ask(account, RequestCode.SINK_PUBLISH, body)).code


async def published(servers: Cluster) -> int:
    answer = await servers.ask(ADMIN, 30, topic="Secret", queueId="0")
    return int(answer.ext["offset"])


async def staged_by_admin(servers: Cluster, sink: str) -> tuple[str, dict[str, str]]:
    staging_id = await begun(servers, ADMIN, sink)
    [block] = blocks_of(ROWS)
    answer = await servers.ask(ADMIN, APPEND, block, stagingId=staging_id, index="0")
    assert answer.code == 0, answer.remark
    answer = await servers.ask(ADMIN, SEAL, stagingId=staging_id)
    assert answer.code == 0, answer.remark
    return staging_id, {name: answer.ext[name] for name in ("count", "size", "checksum")}


async def make_topic(servers: Cluster) -> None:
    answer = await servers.ask(
        ADMIN, 17, topic="Secret", defaultTopic="TBW102", readQueueNums="1", writeQueueNums="1",
        perm="6", topicFilterType="SINGLE_TAG", topicSysFlag="0", order="false",
    )  # fmt: skip
    assert answer.code == 0, answer.remark


def part_of(staging_id: str, numbers: dict[str, str]) -> StagedPart:
    return StagedPart(staging_id, *(int(numbers[n]) for n in ("count", "size", "checksum")))


def test_old_rows_of_a_used_file_are_not_published_again(tmp_path: Path, run_async: Run) -> None:
    """The file of a published batch is reused by a writer without permission for its topic."""

    async def scenario() -> None:
        async with cluster(tmp_path) as servers:
            await make_topic(servers)
            staging_id, numbers = await staged_by_admin(servers, "Q")
            assert await publish(servers, ADMIN, "Q", part_of(staging_id, numbers)) == 0
            assert await published(servers) == 10
            mine = await begun(servers, WRITER, "S")
            answer = await servers.ask(WRITER, SEAL, stagingId=mine, **numbers)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert await publish(servers, WRITER, "S", part_of(mine, numbers)) != 0
            grown = await servers.ask(WRITER, APPEND, stagingId=mine, size=numbers["size"])
            assert grown.code != 0
            # Even administrators are not offered files.
            own = await begun(servers, ADMIN, "Q2")
            for code, fields in ((APPEND, {"size": numbers["size"]}), (SEAL, numbers)):
                answer = await servers.ask(ADMIN, code, stagingId=own, **fields)
                assert answer.code == ResponseCode.NO_PERMISSION, answer.remark
            assert await published(servers) == 10

    run_async(scenario())


def test_sealing_and_publishing_need_pub_on_the_topics(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path) as servers:
            await make_topic(servers)
            # WRITER may write as sink S, and not to this topic.
            staging_id, numbers = await staged_by_admin(servers, "S")
            answer = await servers.ask(WRITER, SEAL, stagingId=staging_id)
            assert answer.code == ResponseCode.NO_PERMISSION
            part = part_of(staging_id, numbers)
            assert await publish(servers, WRITER, "S", part) == ResponseCode.NO_PERMISSION
            assert await published(servers) == 0
            assert await publish(servers, ADMIN, "S", part) == 0
            assert await published(servers) == 10

    run_async(scenario())


def test_peers_from_elsewhere_are_not_offered_files(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            near = await asker.ask(BEGIN, sinkId="S", batchId=0, runId="r")
            assert near.ext["root"] == str(tmp_path)
            assert near.ext["storeId"] and near.ext["bootId"]
            # As if the connection came over a network.
            monkeypatch.setattr(sink_publish, "is_loopback", lambda _: False)
            far = await asker.ask(BEGIN, sinkId="S", batchId=0, runId="r")
            assert not far.ext.keys() & {"root", "storeId", "bootId"}
            staging_id = far.ext["stagingId"]
            for code, fields in (
                (APPEND, {"size": 100}),
                (SEAL, {"count": 0, "size": 0, "checksum": 0}),
            ):
                answer = await asker.ask(code, stagingId=staging_id, **fields)
                assert answer.code == ResponseCode.NO_PERMISSION

    run_async(scenario())
