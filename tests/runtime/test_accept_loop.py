"""A server that runs out of descriptors: connections are refused before the store lacks files."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import re
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_core.broker.metrics.endpoint import MetricsEndpoint
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode
from broker_core.runtime import accept_loop
from broker_core.runtime.clock import SystemClock
from tests.cli import rmq_process
from tests.patient_client import patient_client
from tests.remoting.peers import client, raw_peer, serving, until

Run = Callable[..., Any]

TIMEOUT_MS = 120_000
IDLE = 400


@contextlib.contextmanager
def limited_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int
) -> Iterator[rmq_process.Server]:
    """`rmq broker` under limits of its own."""
    plain = rmq_process.command

    def limited(*arguments: str, **options: Any) -> list[str]:
        shell = f'ulimit -S -n {soft}; ulimit -H -n {hard}; exec "$@"'
        return ["bash", "-c", shell, "--", *plain(*arguments, **options)]

    monkeypatch.setattr(rmq_process, "command", limited)
    settings = tmp_path / "broker.conf"
    settings.write_text(
        f"storePathRootDir={tmp_path}/store\nlistenPort=0\nmappedFileSizeCommitLog=1048576\n"
        "flushDiskType=SYNC_FLUSH\n"
    )
    with rmq_process.running(tmp_path, "broker", "-c", str(settings)) as server:
        yield server


def soft_limit(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            return int(line.split()[3])
    raise AssertionError("no limit is shown")


def test_the_soft_limit_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with limited_broker(tmp_path, monkeypatch, soft=256, hard=3_000) as server:
        assert soft_limit(server.process.pid) == 3_000


def send(topic: str, number: int) -> RemotingCommand:
    ext = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "1", "e": "0", "f": "0", "g": "1", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    return RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext, b"x" * 100_000, opaque=number)


def test_idle_connections_leave_files_to_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_async: Run
) -> None:
    """New topics and new files of the log, while hundreds of idle connections come and stay."""

    async def scenario(address: str, process_id: int) -> int:
        host, _, port = address.rpartition(":")
        async with raw_peer(address) as before:
            idle = [socket.create_connection((host, int(port)), timeout=60) for _ in range(IDLE)]
            try:
                for number in range(40):
                    before.send(send(f"Topic{number}", number))
                    answer = await before.next()
                    assert answer.code == 0, answer.remark
                refused = 0
                for one in idle:
                    one.settimeout(0.0)
                    with contextlib.suppress(BlockingIOError):
                        try:
                            refused += one.recv(1) == b""
                        except ConnectionResetError:
                            refused += 1
                assert IDLE - 256 <= refused < IDLE
            finally:
                for one in idle:
                    one.close()
        # The places of those that left are given to others.
        open_files = Path(f"/proc/{process_id}/fd")
        await until(lambda: len(list(open_files.iterdir())) < 192 - 50)
        late = patient_client()
        try:
            answer = await late.request(address, send("Late", 0), TIMEOUT_MS)
            assert answer.code == 0
        finally:
            await late.close()
        return refused

    with limited_broker(tmp_path, monkeypatch, soft=256, hard=256) as server:
        refused = run_async(scenario(server.address, server.process.pid), limit_s=600)
        errors = server.errors
    assert "reserved for files" in errors
    # Once a second at most, and not for each of them.
    assert errors.count("reserved for files") < refused
    assert "Too many open files" not in errors


async def ask_remoting_port() -> None:
    async with serving() as (_, address), client() as one:
        answer = await one.request(address, RemotingCommand(5, opaque=1), TIMEOUT_MS)
        assert answer.code == 0


async def ask_metrics_port() -> None:
    endpoint = MetricsEndpoint(lambda: b"page", "text/plain", SystemClock())
    port = await endpoint.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"page")
    finally:
        writer.close()
        await endpoint.stop()


@pytest.mark.parametrize("ask", [ask_remoting_port, ask_metrics_port])
def test_accepting_continues_after_the_last_descriptor(
    ask: Callable[[], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    run_async: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures = 0
    real = socket.socket.accept

    def accept(self: socket.socket) -> Any:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return real(self)

    monkeypatch.setattr(socket.socket, "accept", accept)
    monkeypatch.setattr(accept_loop, "_PAUSE_S", 0.01)
    with caplog.at_level(logging.ERROR):
        run_async(ask())
    assert failures == 3
    told = [record for record in caplog.records if "cannot accept" in record.getMessage()]
    assert len(told) == 1


def test_every_port_has_this_accept_loop() -> None:
    """asyncio's own logs an error for each waiting connection, in a tight loop."""
    package = Path(accept_loop.__file__).parents[1]
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    assert len(sources) > 300
    own = re.compile(r"\b(?:start_server|create_server|start_unix_server)\(")
    assert [path.name for path, text in sources.items() if own.search(text)] == []


def test_errors_are_logged_once_a_second(
    run_async: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        now = [1_000.0]
        with socket.create_server(("127.0.0.1", 0)) as bound:
            monkeypatch.setattr(loop, "time", lambda: now[0])
            accepting = accept_loop.AcceptLoop(bound, lambda *_: None, 10)
            for number in range(3_000):
                now[0] = 1_000.0 + number / 1_000
                accepting._errors.log(logging.ERROR, "no room")
            monkeypatch.undo()
            accepting.close()

    with caplog.at_level(logging.ERROR):
        run_async(scenario())
    told = [record.getMessage() for record in caplog.records if "no room" in record.getMessage()]
    assert len(told) == 3
    assert "999 more" in told[1]
