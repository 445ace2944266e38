"""Server commands as processes: the ready line, signals, the pid file, the end of the parent."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.rmq_process import (
    LIMIT_S,
    command,
    environment,
    listening,
    run_rmq,
    running,
)

NAMESRV = ("namesrv", "--listen", "127.0.0.1:0")


def servers(tmp_path: Path) -> dict[str, tuple[str, ...]]:
    store = f"storePathRootDir={tmp_path / 'store'}"
    small = ("-p", "mappedFileSizeCommitLog=1048576", "-p", "maxIndexNum=1000")
    small += ("-p", "maxHashSlotNum=100")
    return {
        "namesrv": NAMESRV,
        "broker": ("broker", "-p", "listenPort=0", "-p", store, *small),
        "standalone": (
            *("standalone", "--port", "0", "--broker-port", "0"),
            *("--store", str(tmp_path / "store")),
        ),
    }


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=LIMIT_S)


@pytest.mark.parametrize("kind", ["namesrv", "broker", "standalone"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_one_line_when_it_serves_and_a_clean_stop(
    tmp_path: Path, kind: str, number: signal.Signals
) -> None:
    with running(tmp_path, *servers(tmp_path)[kind]) as server, connect(server.address) as client:
        ended = server.end(number)
        # The client has stayed all the while: the server did not wait for it to leave.
        assert client.recv(1) == b""
    assert ended.code == 0, ended.errors
    assert ended.output == b""
    assert server.ready.startswith(f"rmq {kind} ")
    assert f"got {number.name}" in ended.errors


def test_the_name_of_the_broker_is_in_its_line(tmp_path: Path) -> None:
    arguments = (*servers(tmp_path)["broker"], "-p", "brokerName=b7", "-n", "127.0.0.1:9")
    with running(tmp_path, *arguments) as server:
        assert server.ready.startswith("rmq broker b7 ready on 127.0.0.1:")
        assert server.end().code == 0


def test_a_temporary_store_is_gone_at_the_end(tmp_path: Path) -> None:
    with running(tmp_path, "standalone", "--port", "0", "--broker-port", "0") as server:
        ended = server.end()
    found = re.search(r"messages are in (\S+) until this ends", ended.errors)
    assert found
    assert not Path(found[1]).exists()


def test_only_this_machine_can_connect(tmp_path: Path) -> None:
    with running(tmp_path, *servers(tmp_path)["standalone"]) as server:
        found = listening(server.process.pid)
    assert [host for host, _ in found] == ["0100007F"] * 2


def test_the_pid_file_is_there_while_it_serves(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with running(tmp_path, *NAMESRV, "--pid-file", str(pid_file)) as server:
        assert pid_file.read_text() == f"{server.process.pid}\n"
        assert server.end().code == 0
    assert not pid_file.exists()


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symlink", "hard link"])
def test_a_pid_file_that_is_a_link_is_refused(tmp_path: Path, make: Callable[..., None]) -> None:
    """Another user may have put it into a shared directory."""
    precious, pid_file = tmp_path / "precious", tmp_path / "pid"
    precious.write_text("precious")
    make(precious, pid_file)
    ended = run_rmq(*NAMESRV, "--pid-file", str(pid_file))
    assert ended.code != 0
    assert "--pid-file" in ended.errors
    assert precious.read_text() == "precious"
    assert "Traceback" not in ended.errors


def test_a_pid_file_of_another_process_is_left_alone(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with running(tmp_path, *NAMESRV, "--pid-file", str(pid_file)) as server:
        pid_file.write_text("1\n")
        assert server.end().code == 0
    assert pid_file.read_text() == "1\n"


def test_a_pid_file_that_cannot_be_written(tmp_path: Path) -> None:
    ended = run_rmq(*NAMESRV, "--pid-file", str(tmp_path / "no" / "pid"))
    assert ended.code == 1
    assert ended.output == b""
    assert "--pid-file" in ended.error_lines[-1]


@pytest.mark.parametrize("kind", ["namesrv", "broker"])
def test_a_taken_port_is_one_line(tmp_path: Path, kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = {
            "namesrv": ("namesrv", "--listen", f"127.0.0.1:{port}"),
            "broker": (*servers(tmp_path)["broker"], "-p", f"listenPort={port}"),
        }
        ended = run_rmq(*asked[kind])
    assert ended.code == 1
    assert ended.output == b""
    assert "Traceback" not in ended.errors
    assert str(port) in ended.error_lines[-1]


def test_a_server_ends_with_its_input(tmp_path: Path) -> None:
    with running(tmp_path, *NAMESRV, "--exit-with-parent", stdin=subprocess.PIPE) as server:
        assert server.process.stdin is not None
        server.process.stdin.write(b"ignored\n")
        server.process.stdin.flush()
        assert server.process.poll() is None
        server.process.stdin.close()
        ended = server.ended()
    assert ended.code == 0
    assert "standard input was closed" in ended.errors


def test_input_without_a_pipe_is_no_reason_to_end(tmp_path: Path) -> None:
    with running(tmp_path, *NAMESRV, "--exit-with-parent") as server:
        with connect(server.address):
            assert server.process.poll() is None
        assert server.end().code == 0


PARENT = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
child.wait()
"""


def test_a_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *command(*NAMESRV, "--exit-with-parent")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as parent:
        assert parent.stdout is not None
        assert b"ready" in parent.stdout.readline()
        parent.kill()
        # The server holds the other ends of these pipes: they end when it does.
        _, errors = parent.communicate(timeout=LIMIT_S)
    assert b"the parent process is gone" in errors


def test_without_the_option_it_outlives_its_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *command(*NAMESRV, "--pid-file", str(pid_file))],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(),
    ) as parent:
        assert parent.stdout is not None
        address = parent.stdout.readline().decode().split()[-1]
        parent.kill()
        parent.wait()
        connect(address).close()
        os.kill(int(pid_file.read_text()), signal.SIGTERM)
        assert parent.stdout.read() == b""


WITHOUT_UVLOOP = """
import sys
sys.modules["uvloop"] = None
from broker_core.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_server_runs_without_uvloop_too(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WITHOUT_UVLOOP, *NAMESRV, "--exit-with-parent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().split()[-1]
        connect(address).close()
        # Its input ends here, and so does it.
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert b"standard input was closed" in errors
