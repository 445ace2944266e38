"""The entry point of the container image, run without a container."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cli.rmq_process import LIMIT_S, environment, killed_late
from tests.interop.loopback_ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
ENTRY = ROOT / "container" / "entrypoint.py"
# Brokers advertise the numeric address of a host.
ADDRESS = "127.0.0.1"
MAKE_ACCOUNTS = """
import os, runpy, sys
names = runpy.run_path(sys.argv[1])
names["make_accounts"](names["Settings"](os.environ))
"""


def variables(data: Path, **changes: str) -> dict[str, str]:
    """The environment of a container on loopback."""
    ours = {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "RMQ_DATA": str(data),
        "RMQ_BIND": ADDRESS,
        "RMQ_ADVERTISED_HOST": "localhost",
    }
    return environment(**{**ours, **changes})


def run(data: Path, *words: str, given: bytes = b"", **changes: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, str(ENTRY), *words],
        input=given,
        capture_output=True,
        env=variables(data, **changes),
        timeout=LIMIT_S,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Container(NamedTuple):
    process: subprocess.Popen[bytes]
    ready: list[str]
    data: Path
    ports: dict[str, str]
    log: Path


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    data, log = tmp_path / "data", tmp_path / "log"
    name_port, broker_port = free_ports(2)
    ports = {"RMQ_NAMESRV_PORT": str(name_port), "RMQ_BROKER_PORT": str(broker_port)}
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, str(ENTRY)],
            stdout=subprocess.PIPE,
            stderr=errors,
            env=variables(data, **ports),
        ) as process,
    ):
        try:
            assert process.stdout is not None
            with killed_late(process):
                ready = [process.stdout.readline().decode() for _ in range(2)]
            assert all(ready), log.read_text()
            yield Container(process, ready, data, ports, log)
        finally:
            process.send_signal(signal.SIGTERM)
            with killed_late(process):
                process.wait()


def test_a_protected_cluster(container: Container) -> None:
    name_server = f"127.0.0.1:{container.ports['RMQ_NAMESRV_PORT']}"
    broker = f"{ADDRESS}:{container.ports['RMQ_BROKER_PORT']}"
    assert container.ready == [
        f"rmq namesrv ready on {name_server}\n",
        f"rmq broker broker-a ready on {broker}\n",
    ]
    assert run(container.data, "health", **container.ports)[0] == 0
    secret = container.data / "admin.secret"
    for name in ("admin.secret", "broker-a.secret", "access.json"):
        assert stat.S_IMODE((container.data / name).stat().st_mode) == 0o600
    # Any other word is a command of rmq.
    account = ("--access-key", "admin", "--secret-key-file", str(secret))
    to = ("-n", name_server, "-t", "orders")
    code, _, errors = run(container.data, "produce", *to, *account, given=b"one\ntwo\n")
    assert code == 0, errors
    code, output, errors = run(container.data, "consume", *to, *account, "-e")
    assert (code, sorted(output.split())) == (0, ["one", "two"]), errors
    code, _, errors = run(container.data, "consume", *to, "-e")
    assert (code, "access denied" in errors) == (1, True), errors
    # The address that clients get.
    code, output, errors = run(container.data, "admin", "topic", "route", *to, *account, "--json")
    assert [row["address"] for row in json.loads(output)] == [broker], errors

    container.process.send_signal(signal.SIGTERM)
    with killed_late(container.process):
        assert container.process.wait() == 0
    assert secret.read_text().strip() not in container.log.read_text()
    assert run(container.data, "health", **container.ports)[0] == 1


def test_accounts_stay_and_trusted_networks_follow_the_variable(tmp_path: Path) -> None:
    found = []
    for networks in ("", "10.0.0.0/8, 192.168.1.2"):
        subprocess.run(
            [sys.executable, "-c", MAKE_ACCOUNTS, str(ENTRY)],
            env=variables(tmp_path, RMQ_TRUSTED_NETWORKS=networks, RMQ_BROKER_NAME="b1"),
            check=True,
            timeout=LIMIT_S,
        )
        found.append(json.loads((tmp_path / "access.json").read_text()))
    assert found[0]["accounts"] == found[1]["accounts"]
    assert [account["accessKey"] for account in found[0]["accounts"]] == ["admin", "b1"]
    assert found[0]["globalWhiteRemoteAddresses"] == []
    assert found[1]["globalWhiteRemoteAddresses"] == ["10.0.0.0/8", "192.168.1.2"]


def test_a_server_that_cannot_start_ends_the_container(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, output, errors = run(tmp_path, "namesrv", RMQ_NAMESRV_PORT=port)
    assert (code, output) == (1, "")
    assert "rmq namesrv: error:" in errors


def test_a_host_without_address(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, RMQ_ADVERTISED_HOST="no host")
    assert code == 1
    assert errors.startswith("rmq-container: error: RMQ_ADVERTISED_HOST='no host' has no address")


def test_a_port_that_is_none(tmp_path: Path) -> None:
    code, _, errors = run(tmp_path, RMQ_BROKER_PORT="often")
    assert code == 1
    assert errors == (
        "rmq-container: error: RMQ_BROKER_PORT='often' is not a port from 1 to 65535\n"
    )
