"""`rmq namesrv`: a name server until it is told to stop."""

from __future__ import annotations

import argparse
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
from broker_core.cli.exposure import is_loopback
from broker_core.cli.process_life import life_options, run_service
from broker_core.cli.server_security import add_server_security_options
from broker_core.embedded.directory_removal import remove_node
from broker_core.nameserver.name_server import NameServer
from broker_core.nameserver.port_encryption import port_encryption

EXAMPLES: Final = """\
  rmq namesrv                                  on 127.0.0.1:9876
  rmq namesrv --listen 127.0.0.1:0             on any free port; the line says which
  rmq namesrv --listen 0.0.0.0:9876 --allow-remote --access-file access.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
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
    # For EmbeddedCluster, whose temporary directories nobody else would remove.
    parser.add_argument("--remove-when-orphaned", type=Path, help=argparse.SUPPRESS)
    add_server_security_options(parser)
    add_process_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the end is asked for."""
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


class _NameServerService:
    """A name server at one address."""

    def __init__(self, server: NameServer, host: str, port: int) -> None:
        self._server = server
        self._host = host
        self._port = port

    async def start(self) -> str:
        """Listen."""
        try:
            port = await self._server.start(self._host, self._port)
        except OSError as error:
            where = shown_address(self._host, self._port)
            raise CommandFailed(f"cannot listen on {where}: {error.strerror or error}") from None
        return f"rmq namesrv ready on {shown_address(self._host, port)}"

    async def stop(self) -> None:
        """Close every connection."""
        await self._server.stop()
