#!/usr/bin/env python3
"""Entry point of the container image: a name server and a broker that other machines can reach.

    standalone    both (default)
    namesrv       the name server only
    broker        the broker only; NAMESRV_ADDR names its name servers
    health        exit code 0 if the servers accept connections
    anything else is a command of rmq: `consume -t orders -e`

Variables, see docs/container.md: RMQ_ADVERTISED_HOST, RMQ_BROKER_NAME, RMQ_BROKER_PORT,
RMQ_NAMESRV_PORT, RMQ_TRUSTED_NETWORKS, RMQ_ACCESS_FILE, RMQ_PROPERTIES, RMQ_BIND, RMQ_DATA.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ADMIN = "admin"
_LOOK_EVERY_S = 0.5
_SERVERS = {"standalone": ("namesrv", "broker"), "namesrv": ("namesrv",), "broker": ("broker",)}


class Settings:
    """The variables, with their defaults."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.bind = environment.get("RMQ_BIND") or "0.0.0.0"
        self.data = Path(environment.get("RMQ_DATA") or "/data")
        self.broker_name = environment.get("RMQ_BROKER_NAME") or "broker-a"
        self.advertised = _address_of(environment.get("RMQ_ADVERTISED_HOST") or "")
        self.broker_port = _port(environment, "RMQ_BROKER_PORT", 10911)
        self.namesrv_port = _port(environment, "RMQ_NAMESRV_PORT", 9876)
        self.trusted = (environment.get("RMQ_TRUSTED_NETWORKS") or "").replace(",", " ").split()
        self.access_file = Path(environment.get("RMQ_ACCESS_FILE") or self.data / "access.json")
        self.has_own_accounts = not environment.get("RMQ_ACCESS_FILE")
        self.properties = shlex.split(environment.get("RMQ_PROPERTIES") or "")
        self.name_servers = environment.get("NAMESRV_ADDR") or ""

    @property
    def local(self) -> str:
        """The address at which these servers reach each other."""
        return "127.0.0.1" if self.bind == "0.0.0.0" else self.bind

    def secret_file(self, account: str) -> Path:
        """Where the secret of an account is."""
        return self.access_file.with_name(f"{account}.secret")


def _port(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise SystemExit(f"rmq-container: error: {name}={text!r} is not a port from 1 to 65535")
    return int(text)


def _address_of(host: str) -> str:
    """The numeric address of a host, as brokers advertise it; this container's if none is given."""
    try:
        return socket.gethostbyname(host or socket.gethostname())
    except OSError as error:
        raise SystemExit(
            f"rmq-container: error: RMQ_ADVERTISED_HOST={host!r} has no address here: {error}; give"
            " the address that clients connect to"
        ) from None


def write_private(path: Path, text: str) -> None:
    """A file of mode 0600, complete or not there."""
    aside = path.with_name(f".{path.name}.new")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def make_accounts(settings: Settings) -> None:
    """Accounts for an administrator and the broker, with new secrets, at the first start.

    Secrets are in files beside it and are never printed. Trusted networks follow the variable.
    """
    path = settings.access_file
    path.parent.mkdir(parents=True, exist_ok=True)
    accounts = []
    for name, right in ((ADMIN, "admin"), (settings.broker_name, "broker")):
        file = settings.secret_file(name)
        if not file.exists():
            write_private(file, secrets.token_urlsafe(24) + "\n")
        account = {"accessKey": name, "secretKey": file.read_text().strip(), right: True}
        if right == "broker":
            account["brokerName"] = settings.broker_name
        accounts.append(account)
    content = {"globalWhiteRemoteAddresses": settings.trusted, "accounts": accounts}
    write_private(path, json.dumps(content, indent=2) + "\n")


def server_command(server: str, settings: Settings) -> list[str]:
    """The command line of one server."""
    if server == "namesrv":
        return [
            "rmq", "namesrv", "--listen", f"{settings.bind}:{settings.namesrv_port}",
            "--allow-remote", "--access-file", str(settings.access_file),
        ]  # fmt: skip
    properties = {
        "brokerName": settings.broker_name,
        "brokerIP1": settings.advertised,
        "bindAddress": settings.bind,
        "listenPort": settings.broker_port,
        "storePathRootDir": settings.data / "store",
        "allowRemote": "true",
        "aclEnable": "true",
        "accessFile": settings.access_file,
        "innerAccessKey": settings.broker_name,
        "innerSecretKeyFile": settings.secret_file(settings.broker_name),
        "vipPortEnable": "false",
        # Slaves need a key: set haListenPort and haAuthKeyFile in RMQ_PROPERTIES.
        "haListenPort": "-1",
    }
    given = [f"{key}={value}" for key, value in properties.items()] + settings.properties
    name_servers = settings.name_servers or f"{settings.local}:{settings.namesrv_port}"
    options = [word for each in given for word in ("-p", each)]
    return ["rmq", "broker", "-n", name_servers, *options]


def serve(servers: tuple[str, ...], settings: Settings) -> int:
    """Run the servers until one ends or a signal comes; all of them end. Returns the exit code."""
    running: list[subprocess.Popen[str]] = []

    def stop(number: int = 0, frame: object = None) -> None:
        # The broker first, so that it can unregister.
        for process in reversed(running):
            if process.poll() is None:
                process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        for server in servers:
            command = server_command(server, settings)
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            running.append(process)
            assert process.stdout is not None
            # The next one needs it ready.
            ready = process.stdout.readline()
            if not ready:
                return process.wait() or 1
            sys.stdout.write(ready)
            sys.stdout.flush()
        while True:
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_LOOK_EVERY_S / len(running))
    finally:
        stop()
        for process in running:
            process.wait()


def health(settings: Settings) -> int:
    """Whether the servers of this container accept connections."""
    ports = [settings.broker_port]
    if not settings.name_servers:
        ports.append(settings.namesrv_port)
    for port in ports:
        try:
            socket.create_connection((settings.local, port), 5).close()
        except OSError as error:
            sys.stderr.write(f"{settings.local}:{port}: {error}\n")
            return 1
    return 0


def main(words: list[str]) -> int:
    """Run the command of the container."""
    settings = Settings(os.environ)
    name = words[0] if words else "standalone"
    if name == "health":
        return health(settings)
    if name not in _SERVERS or len(words) > 1:
        os.execvp("rmq", ["rmq", *words])
    if settings.has_own_accounts:
        make_accounts(settings)
        sys.stderr.write(
            f"account {ADMIN}: its secret is in {settings.secret_file(ADMIN)}; clients reach the"
            f" broker at {settings.advertised}:{settings.broker_port}"
            " (RMQ_ADVERTISED_HOST, RMQ_BROKER_PORT)\n"
        )
    return serve(_SERVERS[name], settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
