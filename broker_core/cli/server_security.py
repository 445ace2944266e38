"""Options of `rmq namesrv` for accounts and TLS; a broker has properties for the same."""

from __future__ import annotations

import argparse

from broker_core.nameserver.port_encryption import TLS_MODES


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
