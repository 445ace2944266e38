"""`rmq namesrv`: runs a name server until it is told to stop."""

from __future__ import annotations

import argparse
import ipaddress
from pathlib import Path
from typing import Final

from broker_core.cli.command_parser import (
    NAME_SERVER_DEFAULT,
    add_process_options,
    address,
    host_and_port,
    shown_address,
)
from broker_core.cli.exit_codes import MISUSED, CommandFailed
from broker_core.cli.servers.process_life import life_options, run_service
from broker_core.embedded.directory_removal import remove_node
from broker_core.nameserver.name_server import NameServer
from broker_core.nameserver.port_encryption import TLS_MODES, port_encryption

EXAMPLES: Final = """\
  rmq namesrv                        on 127.0.0.1:9876
  rmq namesrv --listen 127.0.0.1:0   on any free port, which is printed
  rmq namesrv --listen 0.0.0.0:9876 --allow-remote --access-file access.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-l",
        "--listen",
        type=address,
        default=NAME_SERVER_DEFAULT,
        metavar="HOST:PORT",
        help=f"where to listen; port 0 is any free one (default: {NAME_SERVER_DEFAULT})",
    )
    parser.add_argument(
        "--allow-remote",
        action="store_true",
        help="accept a --listen address that other machines can reach; needs --access-file",
    )
    # For EmbeddedCluster: removes its temporary directory if the owner was killed.
    parser.add_argument("--remove-when-orphaned", type=Path, help=argparse.SUPPRESS)
    _add_security_options(parser)
    add_process_options(parser)


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access and encryption")
    group.add_argument(
        "--access-file",
        metavar="FILE",
        default="",
        help="require an account of this JSON file; only its owner may read it",
    )
    group.add_argument(
        "--strict-signatures",
        action="store_true",
        help="refuse requests that have only RocketMQ's signature",
    )
    group.add_argument(
        "--tls-mode",
        choices=TLS_MODES,
        default=TLS_MODES[0],
        metavar="MODE",
        help="disabled, permissive (TLS and plain text on one port) or enforcing "
        "(default: disabled)",
    )
    group.add_argument("--tls-cert", metavar="FILE", default="", help="certificate, PEM")
    group.add_argument("--tls-key", metavar="FILE", default="", help="its key, PEM")
    group.add_argument(
        "--tls-client-ca",
        metavar="FILE",
        default="",
        help="demand certificates of these authorities from clients, PEM",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    host, port = host_and_port(options.listen)
    life = life_options(options)
    if not is_loopback(host) and not (options.allow_remote and options.access_file):
        raise CommandFailed(
            f"other machines can reach --listen {options.listen}: add --allow-remote, and "
            "--access-file FILE that says who may do what",
            MISUSED,
        )
    server = NameServer(
        tls=port_encryption(
            options.tls_mode, options.tls_cert, options.tls_key, options.tls_client_ca
        ),
        access_file=options.access_file,
        strict_signatures=options.strict_signatures,
    )
    orphaned = options.remove_when_orphaned
    return run_service(
        _NameServerService(server, host, port),
        life,
        when_orphaned=None if orphaned is None else lambda: remove_node(orphaned),
    )


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can connect to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may resolve to anything.
        return False


class _NameServerService:
    """A name server at one address."""

    def __init__(self, server: NameServer, host: str, port: int) -> None:
        self._server = server
        self._host = host
        self._port = port

    async def start(self) -> str:
        """Listen."""
        port = await self._server.start(self._host, self._port)
        return f"rmq namesrv ready on {shown_address(self._host, port)}"

    async def stop(self) -> None:
        """Close every connection."""
        await self._server.stop()
