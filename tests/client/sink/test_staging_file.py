"""Writers on the broker's machine write its staging files directly; the broker verifies them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import ClientConfig, SinkClient, digest_rows, errors
from broker_core.client.sink import stage_writer
from broker_core.client.sink.staging_file import StagingFile, open_staging_file
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity
from tests.broker.running_broker import Asker, broker_config, records, running, until
from tests.codec.codec_backends import batch_of

Run = Callable[..., Any]
WHO = BatchIdentity("S", 0, "run-1")


class Neighbour(SinkClient):
    """A sink client that knows one broker without a name server."""

    def __init__(self, asker: Asker, **options: Any) -> None:
        super().__init__(ClientConfig("127.0.0.1:1"), retry_for_ms=0, **options)
        self._asker = asker

    async def _address(self, broker_name: str) -> str:
        return self._asker.broker.address


@contextlib.asynccontextmanager
async def neighbour(tmp_path: Path, **properties: str) -> AsyncIterator[tuple[Asker, Neighbour]]:
    async with running(broker_config(tmp_path, **properties)) as asker:
        await asker.make_topic("T")
        async with Neighbour(asker) as sink:
            yield asker, sink


async def bodies(asker: Asker) -> list[bytes]:
    found = await asker.pull("T", 0)
    return [message.body for message in records(found)] if found.code == 0 else []


def test_rows_take_no_socket(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            writer = await sink.stage(WHO, "broker-a")
            assert writer.is_local
            for number in range(3):
                await writer.append(batch_of(b"%d" % number, queues=((b"T", 0),)))
            staged = await writer.seal()
            assert await bodies(asker) == []
            await sink.publish(WHO, [staged])
            assert await bodies(asker) == [b"0", b"1", b"2"]
            assert (await sink.publish(WHO, [staged])).is_repeat
            assert writer.digest == digest_rows(batch_of(b"0", b"1", b"2"))

    run_async(scenario())


def test_without_the_directory_they_are_sent(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_writer, "open_staging_file", lambda *_: None)

    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            writer = await sink.stage(WHO, "broker-a")
            assert not writer.is_local
            await writer.append(batch_of(b"x", queues=((b"T", 0),)))
            await sink.publish(WHO, [await writer.seal()])
            assert writer.digest == digest_rows(batch_of(b"x"))
            assert await bodies(asker) == [b"x"]

    run_async(scenario())


def test_another_machine(tmp_path: Path) -> None:
    assert open_staging_file(str(tmp_path / "nowhere"), "0" * 32, 1 << 20) is None
    assert open_staging_file(str(tmp_path), "0" * 32, 1 << 20) is None


def tamper_flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-60] ^= 1
    file.write_bytes(data)


def tamper_cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-10])


def tamper_more(file: Path) -> None:
    file.write_bytes(file.read_bytes() * 2)


@pytest.mark.parametrize("tamper", [tamper_flip, tamper_cut, tamper_more])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_was_changed_is_refused(
    tamper: Callable[[Path], None], when: str, tmp_path: Path, run_async: Run
) -> None:
    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            writer = await sink.stage(WHO, "broker-a")
            await writer.append(batch_of(b"x" * 100, b"y" * 100, queues=((b"T", 0),)))
            [file] = (tmp_path / "staging").iterdir()
            if when == "before":
                tamper(file)
            with pytest.raises(errors.StagingRefused):
                staged = await writer.seal()
                if when == "after":
                    tamper(file)
                await sink.publish(WHO, [staged])
            assert await bodies(asker) == []

    run_async(scenario())


def replace_by_link(file: Path) -> None:
    file.rename(file.with_name(f"{file.name}-moved"))
    file.symlink_to(f"{file.name}-moved")


def replace_by_link_to_the_log(file: Path) -> None:
    file.unlink()
    file.symlink_to("../commitlog/00000000000000000000")


def add_a_name(file: Path) -> None:
    file.with_name(f"{file.name}-too").hardlink_to(file)


def replace_by_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


REPLACEMENTS = [
    replace_by_link, replace_by_link_to_the_log, add_a_name, replace_by_fifo, replace_by_directory,
    Path.unlink,
]  # fmt: skip


@pytest.mark.parametrize("replace", REPLACEMENTS)
@pytest.mark.parametrize("size", [100, 30_000])
def test_another_kind_of_file_is_refused(
    replace: Callable[[Path], None], size: int, tmp_path: Path, run_async: Run
) -> None:
    """At once, not as a transient failure; it takes no room, and the next start ignores it."""

    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            writer = await sink.stage(WHO, "broker-a")
            await writer.append(batch_of(*[b"x" * size] * 100, queues=((b"T", 0),)))
            staged = await writer.seal()
            replace(tmp_path / "staging" / staged.staging_id)
            with pytest.raises(errors.StagingRefused):
                await sink.publish(WHO, [staged])
            assert not asker.broker.context.store.fenced
            await sink.abort([staged])
            area = asker.broker.context.store.staging
            await until(lambda: not area.has_dropped)
            assert area.size == 0
            left = WHO._replace(batch=1)
            writer = await sink.stage(left, "broker-a")
            await writer.append(batch_of(b"left", queues=((b"T", 0),)))
            staged = await writer.seal()
            replace(tmp_path / "staging" / staged.staging_id)
        async with neighbour(tmp_path) as (asker, sink):
            with pytest.raises(errors.StagingRefused):
                await sink.publish(left, [staged])
            writer = await sink.stage(left, "broker-a")
            await writer.append(batch_of(b"good", queues=((b"T", 0),)))
            await sink.publish(left, [await writer.seal()])
            assert await bodies(asker) == [b"good"]

    run_async(scenario())


@pytest.mark.parametrize("replace", REPLACEMENTS)
def test_another_kind_of_file_instead_of_a_spare_one(
    replace: Callable[[Path], None], tmp_path: Path, run_async: Run
) -> None:
    async def published(sink: SinkClient, batch: int) -> None:
        who = WHO._replace(batch=batch)
        writer = await sink.stage(who, "broker-a")
        await writer.append(batch_of(b"%d" % batch, queues=((b"T", 0),)))
        await sink.publish(who, [await writer.seal()])

    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            await published(sink, 0)
            [spare] = (tmp_path / "staging").glob("spare-*")
            replace(spare)
            await published(sink, 1)
            assert await bodies(asker) == [b"0", b"1"]
        left = spare.with_name("spare-77")
        left.write_bytes(b"left by a killed process")
        replace(left)
        async with neighbour(tmp_path) as (asker, sink):
            for batch in (2, 3):
                await published(sink, batch)
            assert await bodies(asker) == [b"0", b"1", b"2", b"3"]

    run_async(scenario())


@pytest.mark.parametrize(
    ("queue", "changes", "refusal"),
    [
        ((b"ReadOnly", 0), {}, errors.NoPermission),
        ((b"T", 99), {}, errors.RemoteError),
        ((b"RMQ_SYS_TRANS_HALF_TOPIC", 0), {}, errors.NoPermission),
        ((b"T", 0), {"sys_flag": 8}, errors.NoPermission),
        ((b"T", 0), {"prepared_offset": 5}, errors.NoPermission),
    ],
)
def test_the_checks_of_ordinary_sends_hold(
    queue: tuple[bytes, int], changes: dict[str, Any], refusal: type[Exception],
    tmp_path: Path, run_async: Run,
) -> None:  # fmt: skip
    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            await asker.make_topic("ReadOnly", perm=4)
            writer = await sink.stage(WHO, "broker-a")
            batch = batch_of(b"x", queues=(queue,))
            await writer.append(batch._replace(**changes))
            with pytest.raises(refusal):
                await sink.publish(WHO, [await writer.seal()])
            assert await bodies(asker) == []

    run_async(scenario())


def test_space_is_requested_before_it_is_used(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_writer, "GROWTH_SIZE", 1_000)

    async def scenario() -> None:
        async with neighbour(tmp_path, sinkStagingSizeMax="20000") as (_, sink):
            writer = await sink.stage(WHO, "broker-a")
            with pytest.raises(errors.StagingRefused, match="sinkStagingSizeMax=20000"):
                for _ in range(30):
                    await writer.append(batch_of(b"x" * 1_000, queues=((b"T", 0),)))
            assert writer.record_count < 25
            await writer.abort()
            assert list((tmp_path / "staging").iterdir()) == []

    run_async(scenario())


def test_every_append_can_renew_the_batch(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that needs no more room: the broker does not see what is written to the file."""
    monkeypatch.setattr(stage_writer, "RENEWALS", 1e12)

    async def scenario() -> None:
        async with neighbour(tmp_path) as (asker, sink):
            sealed = await sink.stage(WHO, "broker-a")
            await sealed.append(batch_of(b"early", queues=((b"T", 0),)))
            staged = [await sealed.seal()]
            draft = asker.broker.context.store.staging.find(sealed.staging_id)
            assert draft is not None
            slow = await sink.stage(WHO, "broker-a")
            assert slow.is_local
            renewed = [draft.lease.renewed]
            for number in range(3):
                await slow.append(batch_of(b"%d" % number, queues=((b"T", 0),)))
                renewed.append(draft.lease.renewed)
            assert renewed == sorted(set(renewed))
            await sink.publish(WHO, [*staged, await slow.seal()])
            assert await bodies(asker) == [b"early", b"0", b"1", b"2"]

    run_async(scenario())


def test_a_full_disk(tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    async def scenario() -> None:
        async with neighbour(tmp_path) as (_, sink):
            writer = await sink.stage(WHO, "broker-a")
            monkeypatch.setattr(StagingFile, "append", full)
            with pytest.raises(errors.DiskFull, match="No space left"):
                await writer.append(batch_of(b"x", queues=((b"T", 0),)))
            await writer.abort()

    run_async(scenario())


def test_a_broker_that_restarts_before_the_publication(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with neighbour(tmp_path) as (_, sink):
            writer = await sink.stage(WHO, "broker-a")
            await writer.append(batch_of(b"x", queues=((b"T", 0),)))
            staged = await writer.seal()
        async with neighbour(tmp_path) as (asker, sink):
            await sink.publish(WHO, [staged])
            assert await bodies(asker) == [b"x"]

    run_async(scenario())


def test_without_local_staging_rows_are_sent(tmp_path: Path, run_async: Run) -> None:
    async def scenario() -> None:
        async with running(broker_config(tmp_path)) as asker:
            await asker.make_topic("T")
            async with Neighbour(asker, local_staging=False) as sink:
                writer = await sink.stage(WHO, "broker-a")
                assert not writer.is_local
                await writer.append(batch_of(b"sent", queues=((b"T", 0),)))
                await sink.publish(WHO, [await writer.seal()])
                assert await bodies(asker) == [b"sent"]

    run_async(scenario())
