"""Options of client commands for accounts and TLS. A secret comes from a file, never from the
command line, which every user of a machine can read.
"""

from __future__ import annotations

import argparse
from typing import Any

from broker_core.access.credentials import read_secret_file
from broker_core.cli.exit_codes import MISUSED, CommandFailed
from broker_core.client.connection.security import check_tls_files


def add_security_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for accounts and TLS."""
    group = parser.add_argument_group("access and encryption")
    group.add_argument("--access-key", metavar="KEY", default="", help="sign as this account")
    group.add_argument(
        "--secret-key-file",
        metavar="FILE",
        default="",
        help="file whose first line is the secret of the account; only its owner may read it",
    )
    group.add_argument("--tls", action="store_true", help="encrypt all connections")
    group.add_argument(
        "--tls-ca",
        metavar="FILE",
        default="",
        help="trust servers with a certificate of these authorities, PEM (default: the system's)",
    )
    group.add_argument(
        "--tls-cert", metavar="FILE", default="", help="certificate to show to servers, PEM"
    )
    group.add_argument("--tls-key", metavar="FILE", default="", help="its key, PEM")


def security_of(options: argparse.Namespace) -> dict[str, Any]:
    """The given options as arguments of `ClientConfig`. Raises `InvalidConfig` for an unusable
    file.
    """
    if bool(options.access_key) != bool(options.secret_key_file):
        raise CommandFailed("--access-key and --secret-key-file go together", MISUSED)
    for name in ("tls_ca", "tls_cert", "tls_key"):
        if getattr(options, name) and not options.tls:
            raise CommandFailed(f"--{name.replace('_', '-')} needs --tls", MISUSED)
    if bool(options.tls_cert) != bool(options.tls_key):
        raise CommandFailed("--tls-cert and --tls-key go together", MISUSED)
    found: dict[str, Any] = {}
    if options.access_key:
        secret = read_secret_file(options.secret_key_file, "--secret-key-file")
        found = {"access_key": options.access_key, "secret_key": secret}
    if options.tls:
        found["tls_enable"] = True
        for name in ("tls_ca", "tls_cert", "tls_key"):
            found[name] = getattr(options, name)
        # Checked here, where the options have their names.
        check_tls_files(
            options.tls_ca,
            options.tls_cert,
            options.tls_key,
            names=("--tls-ca", "--tls-cert", "--tls-key"),
        )
    return found
