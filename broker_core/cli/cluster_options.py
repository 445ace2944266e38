"""Which cluster a client command is for: options of the command line, a profile, the environment.

The profile is that of `--profile`, else of `RMQ_PROFILE`. Without either, the profile `default` is
used, but only if no name server is given otherwise: its account must never sign requests for
another cluster.
"""

from __future__ import annotations

import argparse
import copy
import os
from typing import Any, Final, NamedTuple

from broker_core.cli.client_security import add_security_options, security_of
from broker_core.cli.command_parser import (
    NAME_SERVER_DEFAULT,
    NAME_SERVER_VARIABLE,
    address_list,
    name_servers,
)
from broker_core.cli.exit_codes import MISUSED, CommandFailed
from broker_core.cli.profiles.profile_file import (
    FILE_NAME,
    Profile,
    ProfileFile,
    config_directory,
)

PROFILE_VARIABLE: Final = "RMQ_PROFILE"
PROFILE_DEFAULT: Final = "default"


class GivenCluster(NamedTuple):
    """Name servers, and the arguments of `ClientConfig` for the account and TLS."""

    name_servers: tuple[str, ...]
    security: dict[str, Any]

    def __repr__(self) -> str:
        # Without the secret.
        return f"<cluster at {';'.join(self.name_servers)}>"


def add_cluster_options(
    parser: argparse.ArgumentParser, title: str = "cluster", *, or_local: bool = True
) -> Any:
    """Add options for name servers, profiles, accounts and TLS. Returns the group of the first two.

    `or_local` as for `given_cluster`.
    """
    default = f", else {NAME_SERVER_DEFAULT}" if or_local else ""
    group = parser.add_argument_group(title)
    group.add_argument(
        "-n",
        "--namesrv",
        type=address_list,
        metavar="ADDRESSES",
        help="name servers as HOST:PORT, several separated by ; (default: the variable "
        f"{NAME_SERVER_VARIABLE}{default})",
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        help=f"name servers, account and TLS of this profile (default: the variable "
        f"{PROFILE_VARIABLE}); rmq profile --help",
    )
    add_security_options(parser)
    return group


def profile_file() -> ProfileFile:
    """The file of this user."""
    return ProfileFile(config_directory(os.environ) / FILE_NAME)


def chosen_profile_name(given: str | None, has_name_servers: bool) -> str:
    """The profile to use; empty for none. `default` may not exist."""
    name = given or os.environ.get(PROFILE_VARIABLE, "")
    if name or has_name_servers or os.environ.get(NAME_SERVER_VARIABLE, "").strip():
        return name
    return PROFILE_DEFAULT


def given_cluster(options: argparse.Namespace, *, or_local: bool = True) -> GivenCluster:
    """The cluster of the options that `add_cluster_options` added.

    If none is given it is that of this machine, or with `or_local=False` without name servers.
    """
    profile = _profile(options)
    if profile is None:
        found = GivenCluster(options.namesrv or (), security_of(options))
    else:
        found = _joined(options, profile)
    is_given = found.name_servers or os.environ.get(NAME_SERVER_VARIABLE, "").strip()
    if is_given or or_local:
        found = found._replace(name_servers=name_servers(found.name_servers))
    return found


def _profile(options: argparse.Namespace) -> Profile | None:
    name = chosen_profile_name(options.profile, bool(options.namesrv))
    if not name:
        return None
    file = profile_file()
    profiles = file.read()
    if name not in profiles:
        if name == PROFILE_DEFAULT and not (options.profile or os.environ.get(PROFILE_VARIABLE)):
            return None
        known = f"profiles are {', '.join(profiles)}" if profiles else "there are none"
        where = f"--profile {name}" if options.profile else f"{PROFILE_VARIABLE}={name}"
        raise CommandFailed(f"{where:.80}: no such profile in {file.path}; {known}", MISUSED)
    return profiles[name]


def _joined(options: argparse.Namespace, profile: Profile) -> GivenCluster:
    """Options override the profile; an account is taken from one of them as a whole."""
    joined = copy.copy(options)
    secret = ""
    if not (options.access_key or options.secret_key_file):
        secret = profile.secret_key
        if not secret:
            joined.access_key = profile.access_key
            joined.secret_key_file = profile.secret_key_file
    joined.tls = options.tls or profile.tls
    joined.tls_ca = options.tls_ca or profile.tls_ca
    joined.tls_cert = options.tls_cert or profile.tls_cert
    joined.tls_key = options.tls_key or profile.tls_key
    security = security_of(joined)
    if secret:
        security |= {"access_key": profile.access_key, "secret_key": secret}
    servers = options.namesrv or (address_list(profile.namesrv) if profile.namesrv else ())
    return GivenCluster(servers, security)
