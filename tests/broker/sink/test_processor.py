"""The sink's requests over sockets, with all checks of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.sink.batches import SinkBatches
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import (
    Publication,
    PublishAnswer,
    encode_blocks,
    encode_ids,
    encode_publication,
    parse_publish_answer,
    parse_status,
)
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.errors import DiskFailed
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.broker.running_broker import Asker, broker_config, records, running, until
from tests.broker.sink_store import identity
from tests.codec.codec_backends import batch_of

Run = Callable[..., Any]
NO_TOPICS = {"autoCreateTopicEnable": "false"}


class SinkAsker:
    """The requests of one sink client, one by one."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker

    async def begin(self, batch: int = 0, run: str = "run-1", sink: str = "S") -> str:
        answer = await self.asker.ask(
            RequestCode.STAGE_BEGIN, sinkId=sink, batchId=batch, runId=run
        )
        assert answer.code == 0, answer.remark
        assert len(bytes.fromhex(answer.ext["bornHost"])) == int(answer.ext["storeHostSize"]) == 8
        return answer.ext["stagingId"]

    async def append(
        self,
        staging_id: str,
        bodies: list[bytes],
        index: int = 0,
        queue: tuple[str, int] = ("T", 0),
    ) -> RemotingCommand:
        batch = batch_of(*bodies, queues=((queue[0].encode(), queue[1]),))
        [(_, body)] = encode_blocks(batch, 1 << 24)
        return await self.asker.ask(
            RequestCode.STAGE_APPEND, bytes(body), stagingId=staging_id, index=index
        )

    async def seal(self, staging_id: str) -> StagedPart:
        answer = await self.asker.ask(RequestCode.STAGE_SEAL, stagingId=staging_id)
        assert answer.code == 0, answer.remark
        numbers = (int(answer.ext[name]) for name in ("count", "size", "checksum"))
        return StagedPart(staging_id, *numbers)

    async def stage(
        self, bodies: list[bytes], batch: int = 0, run: str = "run-1", sink: str = "S",
        queue: tuple[str, int] = ("T", 0),
    ) -> StagedPart:  # fmt: skip
        staging_id = await self.begin(batch, run, sink)
        answer = await self.append(staging_id, bodies, queue=queue)
        assert answer.code == 0, answer.remark
        return await self.seal(staging_id)

    async def ask_publish(
        self, parts: list[StagedPart], batch: int = 0, run: str = "run-1", sink: str = "S"
    ) -> RemotingCommand:
        body = encode_publication(Publication(identity(batch, run, sink), tuple(parts)))
        return await self.asker.ask(RequestCode.SINK_PUBLISH, body)

    async def publish(self, parts: list[StagedPart], **who: Any) -> PublishAnswer:
        answer = await self.ask_publish(parts, **who)
        assert answer.code == 0, answer.remark
        return parse_publish_answer(answer.body)

    async def bodies(self, queue: tuple[str, int] = ("T", 0)) -> list[bytes]:
        found = await self.asker.pull(*queue)
        return [message.body for message in records(found)] if found.code == 0 else []


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_stage_seal_publish(flush: str, tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        config = broker_config(tmp_path, flushDiskType=flush)
        async with running(config) as asker:
            await asker.make_topic("T")
            sink = SinkAsker(asker)
            first = await sink.stage([b"a", b"b"])
            second = await sink.stage([b"c"], queue=("T", 2))
            assert await sink.bodies() == []
            answer = await sink.publish([first, second])
            assert answer[:3] == (False, 0, {"T": {0: (0, 2), 2: (0, 1)}})
            # What is answered is visible.
            assert await sink.bodies() == [b"a", b"b"]
            assert await sink.bodies(("T", 2)) == [b"c"]
            assert await sink.publish([first, second]) == answer._replace(is_repeat=True)
            status = await asker.ask(RequestCode.SINK_STATUS, sinkId="S")
            assert parse_status(status.body)[:3] == (True, 0, "run-1")
        # Clean stop and start.
        async with running(config) as asker:
            sink = SinkAsker(asker)
            again = await sink.publish([first, second], run="run-2")
            assert again == answer._replace(is_repeat=True)
            assert await sink.bodies() == [b"a", b"b"]

    run_async(scenario())


def test_capabilities_name_it(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            answer = await asker.ask(RequestCode.CAPABILITIES)
            assert answer.ext["sink"] == "1"

    run_async(scenario())


def test_the_checks_of_ordinary_sends_hold(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **NO_TOPICS)) as asker:
            await asker.make_topic("T")
            await asker.make_topic("ReadOnly", perm=4)
            sink = SinkAsker(asker)
            staging_id = await sink.begin()
            for queue, code in (
                (("Nowhere", 0), ResponseCode.TOPIC_NOT_EXIST),
                (("ReadOnly", 0), ResponseCode.NO_PERMISSION),
                (("SCHEDULE_TOPIC_XXXX", 0), ResponseCode.NO_PERMISSION),
                (("RMQ_SYS_TRANS_HALF_TOPIC", 0), ResponseCode.NO_PERMISSION),
                (("RMQ_SYS_TRANS_OP_HALF_TOPIC", 0), ResponseCode.NO_PERMISSION),
                (("rmq_sys_append_group", 0), ResponseCode.NO_PERMISSION),
                (("%RETRY%group", 0), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
                (("T", 4), ResponseCode.INVALID_PARAMETER),
            ):
                answer = await sink.append(staging_id, [b"x"], queue=queue)
                assert answer.code == code, (queue, answer.remark)
            assert (await sink.append(staging_id, [b"x"])).code == 0
            too_long = await sink.append(staging_id, [bytes((4 << 20) + 1)], 1)
            assert too_long.code == ResponseCode.MESSAGE_ILLEGAL
            assert (await sink.seal(staging_id)).record_count == 1

    run_async(scenario())


def test_a_topic_comes_into_being_where_sends_create_it(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            sink = SinkAsker(asker)
            await sink.publish([await sink.stage([b"x"], queue=("New", 1))])
            topic = asker.broker.context.topics.find("New")
            assert topic is not None
            assert topic.write_queue_count == 4
            assert await sink.bodies(("New", 1)) == [b"x"]

    run_async(scenario())


def test_a_topic_that_is_gone_when_its_rows_are_published(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path, **NO_TOPICS)) as asker:
            await asker.make_topic("T")
            sink = SinkAsker(asker)
            part = await sink.stage([b"x"])
            await asker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            answer = await sink.ask_publish([part])
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            await asker.make_topic("T")
            assert not (await sink.publish([part])).is_repeat

    run_async(scenario())


def test_clients_cannot_write_notes(tmp_path: Path, run_async: Run) -> None:
    """A forged note would make the broker believe that a batch was published."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            answer = await asker.send("rmq_sys_append_group")
            assert answer.code == ResponseCode.NO_PERMISSION
            assert asker.broker.context.topics.find("rmq_sys_append_group") is None

    run_async(scenario())


def test_refusals_have_their_own_codes(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            sink = SinkAsker(asker)
            old = await sink.stage([b"old"])
            new = await sink.stage([b"new"], run="run-2")
            fenced = await sink.ask_publish([old])
            assert fenced.code == ResponseCode.SINK_FENCED
            assert "replaced by run run-2" in (fenced.remark or "")
            await sink.publish([new], run="run-2")
            await sink.publish([], batch=5, run="run-2")
            late = await sink.ask_publish([], batch=3, run="run-2")
            assert late.code == ResponseCode.SINK_BATCH_OLD
            lost = await sink.ask_publish([new], batch=6, run="run-2")
            assert lost.code == ResponseCode.STAGING_REFUSED
            begin = await asker.ask(RequestCode.STAGE_BEGIN, sinkId="S", batchId=9, runId="run-1")
            assert begin.code == ResponseCode.SINK_FENCED
            for body in (b"", b"[]", b"{}", b'{"v":2}', b'{"v":1,"sink":"S","batch":-1}'):
                wrong = await asker.ask(RequestCode.SINK_PUBLISH, body)
                assert wrong.code == ResponseCode.INVALID_PARAMETER

    run_async(scenario())


def test_abort_drops(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            sink = SinkAsker(asker)
            part = await sink.stage([b"x"])
            open_id = await sink.begin()
            body = encode_ids([part.staging_id, open_id, "f" * 32, "../../etc"])
            answer = await asker.ask(RequestCode.STAGE_DROP, body)
            assert answer.ext["dropped"] == "2"
            assert asker.broker.context.store.staging.size == 0
            assert (await sink.ask_publish([part])).code == ResponseCode.STAGING_REFUSED
            # An abort that comes after the publication changes nothing.
            part = await sink.stage([b"y"])
            await sink.publish([part])
            await asker.ask(RequestCode.STAGE_DROP, encode_ids([part.staging_id]))
            assert await sink.bodies() == [b"y"]

    run_async(scenario())


def test_many_writers_and_publishers_at_once(tmp_path: Path, run_async: Run) -> None:
    """Two attempts of every partition, and every publication sent three times over."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            sink = SinkAsker(asker)
            for batch in range(5):
                attempts = [
                    sink.stage([f"{batch}/{p}/{a}".encode()], batch, queue=("T", p))
                    for p in range(4)
                    for a in range(2)
                ]
                parts = await asyncio.gather(*attempts)
                chosen = [parts[2 * p : 2 * p + 2] for p in range(4)]
                sets = [[pair[0] for pair in chosen], [pair[1] for pair in chosen]]
                answers = await asyncio.gather(
                    *(sink.publish(sets[n % 2], batch=batch) for n in range(3))
                )
                assert [answer.is_repeat for answer in answers].count(False) == 1
                assert len({str(answer.offsets) for answer in answers}) == 1
            for p in range(4):
                bodies = await sink.bodies(("T", p))
                assert [body.split(b"/")[0] for body in bodies] == [b"%d" % b for b in range(5)]
                # All of a batch come from one of the two sets.
            taken = [[b.split(b"/")[2] for b in await sink.bodies(("T", p))] for p in range(4)]
            assert taken[0] == taken[1] == taken[2] == taken[3]
            assert asker.broker.context.store.staging.size == 0

    run_async(scenario())


def test_a_reader_never_sees_a_part_of_a_batch(tmp_path: Path, run_async: Run) -> None:
    """Readers poll all queues all the time; offsets of a batch appear in one step."""

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            sink = SinkAsker(asker)
            store, ends, is_over = asker.broker.context.store, set(), False

            async def look_in_memory() -> None:
                while not is_over:
                    ends.add(tuple(store.offsets("T", q)[1] for q in range(4)))
                    await asyncio.sleep(0)

            async def pull() -> list[bytes]:
                seen: list[bytes] = []
                while not is_over or len(seen) < 60:
                    found = await asker.pull("T", 0, len(seen), suspendTimeoutMillis=50, sysFlag=6)
                    if found.code == 0:
                        new = [message.body for message in records(found)]
                        # Ten rows of each batch, always together.
                        assert len(new) % 10 == 0
                        seen += new
                return seen

            looking = asyncio.ensure_future(look_in_memory())
            pulling = asyncio.ensure_future(pull())
            for batch in range(6):
                rows = [f"{batch}/{n}".encode() for n in range(10)]
                parts = [await sink.stage(rows, batch, queue=("T", p)) for p in range(4)]
                aborted = await sink.stage([b"never"], batch)
                await sink.publish(parts, batch=batch)
                await sink.ask_publish([aborted], batch=batch)
            is_over = True
            await looking
            seen = await pulling
            assert ends <= {(10 * n,) * 4 for n in range(7)}
            assert seen == [f"{b}/{n}".encode() for b in range(6) for n in range(10)]

    run_async(scenario())


def test_a_client_that_leaves_before_its_answer(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            sink = SinkAsker(asker)
            part = await sink.stage([b"x"])
            store = asker.broker.context.store
            asking = asyncio.ensure_future(sink.ask_publish([part]))
            await asyncio.sleep(0)
            connection = asker.client.connection_to(asker.broker.address)
            assert connection is not None
            connection.close("closed by this client")
            with pytest.raises(Exception, match=r"clos|lost"):
                await asking
            # The broker may have got it or not; a repeat has the outcome, and publishes once.
            await sink.publish([part])
            assert await sink.bodies() == [b"x"]
            await until(lambda: not store.staging.size)

    run_async(scenario())


def test_saved_once_a_minute(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await SinkAsker(asker).publish([], batch=3)
            upkeep, sinks = asker.broker.features.upkeep, asker.broker.features.sink.batches
            upkeep.tick()
            assert sinks.has_unsaved
            upkeep._sinks_saved_at -= 61
            upkeep.tick()
            await until(lambda: not sinks.has_unsaved)
            assert (tmp_path / "config" / "sinkBatches.json").exists()

    run_async(scenario())


def test_a_table_that_cannot_be_saved_does_not_stop_a_stop(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: SinkBatches) -> bool:
        raise DiskFailed("no space")

    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await SinkAsker(asker).publish([], batch=3)
            monkeypatch.setattr(SinkBatches, "save", full)
        assert not (tmp_path / "abort").exists()
        monkeypatch.undo()
        async with running(broker_config(tmp_path)) as asker:
            assert asker.broker.features.sink.batches.status("S").batch == 3

    run_async(scenario())


def test_saved_at_the_stop(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await SinkAsker(asker).publish([], batch=3)
        assert (tmp_path / "config" / "sinkBatches.json").exists()

    run_async(scenario())
