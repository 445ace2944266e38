"""Options of `rmq namesrv` for accounts and TLS; a broker has properties for the same."""

from __future__ import annotations

import argparse
from typing import Final

from broker_core.cli.exit_codes import MISUSED, CommandFailed
from broker_core.remoting.tls_context import (
    ClientAuth,
    OptionNames,
    ServerTls,
    TlsMode,
    server_context,
)

_NAMES: Final = OptionNames("--tls-cert", "--tls-key", "--tls-client-ca")


def add_server_security_options(parser: argparse.ArgumentParser) -> None:
    """What a name server takes."""
    group = parser.add_argument_group("access and encryption")
    group.add_argument(
        "--access-file",
        metavar="FILE",
        default="",
        help="let only accounts of this JSON file in; only its owner may read it",
    )
    group.add_argument(
        "--strict-signatures",
        action="store_true",
        help="refuse requests that have only RocketMQ's signature",
    )
    group.add_argument(
        "--tls-mode",
        choices=[mode.value for mode in TlsMode],
        default=TlsMode.DISABLED.value,
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


def server_tls_of(options: argparse.Namespace) -> ServerTls | None:
    """What the port speaks. Raises `InvalidConfig` for files that cannot be used."""
    mode = TlsMode(options.tls_mode)
    if mode is TlsMode.DISABLED:
        for name in ("tls_cert", "tls_key", "tls_client_ca"):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise CommandFailed(f"{option} needs --tls-mode permissive or enforcing", MISUSED)
        return None
    context = server_context(
        options.tls_cert,
        options.tls_key,
        _NAMES,
        authority=options.tls_client_ca,
        client_auth=ClientAuth.REQUIRE if options.tls_client_ca else ClientAuth.NONE,
    )
    return ServerTls(context, allows_plain=mode is TlsMode.PERMISSIVE)
