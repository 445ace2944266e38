"""The commands with accounts and TLS, as processes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.protocol_codes import RequestCode, ResponseCode
from tests.access.access_files import ADMIN, BROKER, write_access_file, write_secret_file
from tests.cli.rmq_process import listening, run_rmq, running
from tests.interop.server_processes import wait_until
from tests.patient_client import patient_client
from tests.remoting.certificates import Authority

USER = {
    "accessKey": "shell",
    "secretKey": "canary-of-the-shell",
    "topicPerms": ["T=PUB|SUB"],
    "defaultGroupPerm": "SUB",
}


def test_a_protected_cluster_from_the_shell(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    access = write_access_file(tmp_path / "access.json", USER, BROKER, ADMIN)
    properties = {
        "aclEnable": "true",
        "accessFile": str(access),
        "innerAccessKey": BROKER["accessKey"],
        "innerSecretKeyFile": str(write_secret_file(tmp_path / "inner", BROKER)),
        "tlsServerMode": "enforcing",
        "tls.server.certPath": files.certificate,
        "tls.server.keyPath": files.key,
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.path,
    }
    given = [word for key, value in properties.items() for word in ("-p", f"{key}={value}")]
    options = ("standalone", "--port", "0", "--broker-port", "0", "-t", "T:1", *given)
    secret = write_secret_file(tmp_path / "secret", USER)
    with running(tmp_path, *options) as server:
        to = ("-n", server.address, "-t", "T", "--tls", "--tls-ca", authority.path)
        keys = ("--access-key", "shell", "--secret-key-file", str(secret))
        produced = run_rmq("produce", *to, *keys, given=b"one\ntwo\n")
        assert produced.code == 0, produced.errors
        consumed = run_rmq("consume", *to, *keys, "-o", "beginning", "--exit-at-end")
        assert (consumed.code, consumed.output) == (0, b"one\ntwo\n"), consumed.errors
        unsigned = run_rmq("consume", *to, "-o", "beginning", "--exit-at-end")
        assert unsigned.code == 1
        assert unsigned.errors == (
            "rmq consume: error: access denied: the access key or the signature is missing or"
            " wrong. Compare --access-key and --secret-key-file, or those of the profile, with the"
            " accounts of the cluster. See docs/errors.md#access-denied\n"
        )
        refused = run_rmq("admin", "topic", "create", *to, *keys)
        assert refused.errors.endswith(
            "account shell is not an admin account, request 17. Compare --access-key and"
            " --secret-key-file, or those of the profile, with the accounts of the cluster."
            " See docs/errors.md#access-denied\n"
        )
        top = run_rmq("lag", *to)
        assert top.errors.endswith("See docs/errors.md#access-denied\n")
        plain = run_rmq("consume", *to[:4], *keys, "-o", "beginning", "--exit-at-end")
        assert (plain.code, plain.output) == (1, b"")
        ended = server.end()
    assert ended.code == 0
    for text in (produced.errors, consumed.errors, unsigned.errors, plain.errors, ended.errors):
        assert "canary" not in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--access-key", "a"), "go together"),
        (("--secret-key-file", "a"), "go together"),
        (("--tls-ca", "a"), "needs --tls"),
        (("--tls", "--tls-key", "a"), "go together"),
    ],
)
def test_halves_are_refused(options: tuple[str, ...], reason: str) -> None:
    ended = run_rmq("produce", "-t", "T", *options)
    assert ended.code == 2
    assert reason in ended.errors


def test_servers_with_and_without_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("server")
    tls = ("--tls-mode", "enforcing", "--tls-cert", files.certificate, "--tls-key", files.key)
    told = {}
    for name, options in (("plain", ()), ("tls", tls)):
        with running(tmp_path, "namesrv", "--listen", "127.0.0.1:0", *options) as server:
            to = ("admin", "topic", "list", "-n", server.address)
            told[name] = run_rmq(*to, *(("--tls",) if name == "plain" else ()))
            if name == "tls":
                told["unknown"] = run_rmq(*to, "--tls")
            server.end()
    tail = (
        ". Compare --tls, --tls-ca and --tls-cert, or those of the profile, with the TLS settings"
        " of the server. See docs/errors.md#tls-mismatch\n"
    )
    assert {answer.code for answer in told.values()} == {1}
    assert told["plain"].errors.endswith(
        "the server ended the handshake; it may not speak TLS, or require a client certificate"
        + tail
    )
    assert "the certificate of the server was rejected: " in told["unknown"].errors
    assert told["unknown"].errors.endswith(tail)
    assert "closed by the peer before any answer: it may require TLS" in told["tls"].errors


def test_a_file_for_tls_is_called_as_the_option_is() -> None:
    ended = run_rmq("consume", "-t", "T", "--tls", "--tls-ca", "/gone.pem")
    assert (ended.code, ended.errors) == (
        2,
        "rmq consume: error: --tls-ca='/gone.pem' cannot be used: a PEM file with certificates of"
        " authorities: No such file or directory\n",
    )


def test_by_default_only_this_machine_can_connect(tmp_path: Path) -> None:
    """Every socket on which the servers listen, metrics included, has a loopback address."""
    options = ("-p", "metricsExporterType=PROM", "-p", "metricsPromExporterPort=0")
    ports = ("--port", "0", "--broker-port", "0", "-p", "vipPortEnable=true")
    with running(tmp_path, "standalone", *ports, *options) as server:
        # Name server, broker, VIP port, slaves, metrics: some open after the line that says ready.
        wait_until(lambda: len(listening(server.process.pid)) >= 4, 120, "four open ports")
        found = listening(server.process.pid)
        server.end()
    assert {host for host, _ in found} <= {"0100007F", "00000000000000000000000001000000"}


# Of RocketMQ's history: keys through which its brokers could be made to run something, or to write
# where it is not expected.
EXPLOITS = (
    "rocketmqHome", "filterServerNums", "configStorePath", "kvConfigPath", "brokerConfigPath",
    "storePathRootDir", "storePathCommitLog", "namesrvAddr", "accessFile", "bindAddress",
)  # fmt: skip


@contextlib.contextmanager
def traced(pid: int, trace: Path) -> Iterator[None]:
    """Notes every program that a process begins to run."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    command = ["strace", "-f", "-p", str(pid), "-o", str(trace), "-e", "trace=execve,execveat"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
        assert strace.stderr is not None
        try:
            first = strace.stderr.readline().decode()
            if "attached" not in first:
                pytest.skip(f"needs the right to trace: {first}")
            yield
        finally:
            strace.terminate()


def test_no_setting_makes_a_server_start_a_process(tmp_path: Path) -> None:
    async def set_all(address: str) -> None:
        client = patient_client()
        for key in EXPLOITS:
            for value in ("$(touch canary)", "/bin/touch canary", "1"):
                command = RemotingCommand(
                    RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}={value}\n".encode()
                )
                answer = await client.request(address, command, 10_000)
                assert answer.code in (0, ResponseCode.NO_PERMISSION)
        await client.close()

    ports = ("--port", "0", "--broker-port", "0", "-t", "T:1")
    with running(tmp_path, "standalone", *ports) as server:
        with traced(server.process.pid, tmp_path / "trace"):
            asyncio.run(set_all(server.ready.rstrip().rpartition(" ")[2]))
            produced = run_rmq("produce", "-n", server.address, "-t", "T", given=b"one\n")
            assert produced.code == 0, produced.errors
        server.end()
    assert "exec" not in (tmp_path / "trace").read_text()
    assert not list(tmp_path.rglob("canary"))
