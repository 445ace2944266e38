"""A broker that names foreign files when a writer begins to stage: no such file is touched."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_core import ClientConfig, SinkClient, errors
from broker_core.client.sink import client as sink_client
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.remoting.connection import Connection
from broker_core.storage.files.posix_file_system import PosixFileSystem
from broker_core.store.message_store import MessageStore
from tests.codec.codec_backends import batch_of
from tests.remoting.peers import serving

Run = Callable[..., Any]
WHO = BatchIdentity("S", 0, "run-1")
ID = "0123456789abcdef" * 2
PRECIOUS = b"precious " * 1_000


class _Victim(SinkClient):
    def __init__(self, address: str) -> None:
        super().__init__(ClientConfig("127.0.0.1:1"), retry_for_ms=0)
        self._broker = address

    async def _address(self, broker_name: str) -> str:
        return self._broker


class _HostileBroker:
    """Answers what a broker of ours does, with fields of its own choice for STAGE_BEGIN."""

    def __init__(self, **fields: str) -> None:
        self.fields = {"stagingId": ID, "bornHost": "7f00000100000001", "storeHostSize": "8"}
        self.fields |= fields
        self.count = 0

    def __call__(self, _: Connection, command: RemotingCommand) -> RemotingCommand:
        if command.code == RequestCode.CAPABILITIES:
            return command.reply(0, None, {"sink": "1"})
        if command.code == RequestCode.STAGE_BEGIN:
            return command.reply(0, None, self.fields)
        if command.code == RequestCode.STAGE_APPEND:
            self.count += 1
        if command.code == RequestCode.STAGE_SEAL:
            return command.reply(0, None, {"count": "1", "size": "1", "checksum": "1"})
        return command.reply(0)


async def write(broker: _HostileBroker) -> bool:
    """Stage one row; whether it went into a file."""
    async with serving(broker) as (_, address), _Victim(address) as sink:
        writer = await sink.stage(WHO, "broker-a")
        await writer.append(batch_of(b"x" * 500, queues=((b"T", 0),)))
        await writer.seal()
        return writer.is_local


def real_store(root: Path) -> dict[str, str]:
    """A store of this user, with a file that waits for its writer; what its broker would say."""
    with MessageStore.open(root) as store:
        found = {"root": str(root), "storeId": store.store_id, "bootId": store.boot_id}
    files = PosixFileSystem(root)
    files.make_dir("staging")
    files.create(f"staging/{ID}").close()
    files.close()
    return found


def test_a_store_that_is_the_one_is_written_to(tmp_path: Path, run_async: Run) -> None:
    fields = real_store(tmp_path / "store")
    assert run_async(write(_HostileBroker(**fields)))
    assert (tmp_path / "store" / "staging" / ID).stat().st_size > 500


def test_any_directory_of_the_user(tmp_path: Path, run_async: Run) -> None:
    (tmp_path / "staging").mkdir()
    file = tmp_path / "staging" / ID
    file.write_bytes(PRECIOUS)
    boot_id = PosixFileSystem(tmp_path).boot_id()
    for fields in ({}, {"storeId": "00" * 16, "bootId": boot_id}, {"bootId": boot_id}):
        broker = _HostileBroker(root=str(tmp_path), **fields)
        assert not run_async(write(broker))
        assert broker.count == 1
    assert file.read_bytes() == PRECIOUS


@pytest.mark.parametrize(
    "staging_id",
    ["", "notes.txt", "../notes.txt", "../../notes.txt", "/etc/passwd", f"{ID}\n", ID.upper(),
     ID[:-1], f"{ID}0", "spare-0", "../config/topics.json"],
)  # fmt: skip
def test_ids_of_another_form(staging_id: str, tmp_path: Path, run_async: Run) -> None:
    fields = real_store(tmp_path / "store")
    notes = [tmp_path / "store" / "notes.txt", tmp_path / "store" / "staging" / "notes.txt"]
    for note in notes:
        note.write_bytes(PRECIOUS)
    fields["stagingId"] = staging_id
    with pytest.raises(errors.RmqError):
        run_async(write(_HostileBroker(**fields)))
    assert [note.read_bytes() for note in notes] == [PRECIOUS] * 2


@pytest.mark.parametrize("changed", ["storeId", "bootId"])
def test_a_store_that_is_another(changed: str, tmp_path: Path, run_async: Run) -> None:
    fields = real_store(tmp_path / "store")
    fields[changed] = "11" * 16
    assert not run_async(write(_HostileBroker(**fields)))
    assert (tmp_path / "store" / "staging" / ID).stat().st_size == 0


@pytest.mark.parametrize("kind", ["file", "directory", "hard link"])
def test_links_are_not_followed(kind: str, tmp_path: Path, run_async: Run) -> None:
    fields = real_store(tmp_path / "store")
    staging = tmp_path / "store" / "staging"
    (staging / ID).unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    victim = elsewhere / ID
    victim.write_bytes(PRECIOUS)
    if kind == "directory":
        staging.rmdir()
        staging.symlink_to(elsewhere)
    elif kind == "file":
        (staging / ID).symlink_to(victim)
    else:
        os.link(victim, staging / ID)
    assert not run_async(write(_HostileBroker(**fields)))
    assert victim.read_bytes() == PRECIOUS


def test_a_broker_on_another_machine(
    tmp_path: Path, run_async: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may know everything else, as in a container that shares the kernel."""
    fields = real_store(tmp_path / "store")
    monkeypatch.setattr(sink_client, "is_loopback_host", lambda _: False)
    assert not run_async(write(_HostileBroker(**fields)))
    assert (tmp_path / "store" / "staging" / ID).stat().st_size == 0
