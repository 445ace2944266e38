"""`rmq profile`: lists, shows, writes and deletes profiles. Secrets are never printed."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Final

from broker_core.cli.admin.confirmation import confirm
from broker_core.cli.admin.report import Facts, Note, Report, Table, print_report
from broker_core.cli.client_security import add_security_options
from broker_core.cli.cluster_options import PROFILE_DEFAULT, chosen_profile_name, profile_file
from broker_core.cli.command_parser import address_list
from broker_core.cli.exit_codes import DONE, MISUSED, CommandFailed
from broker_core.cli.profiles.profile_file import Profile, ProfileFile, is_profile_name

EXAMPLES: Final = """\
  rmq profile set prod -n 'a:9876;b:9876' --tls --tls-ca ca.pem
  rmq profile set prod -n a:9876 --access-key shop --ask-secret
  rmq profile set default -n a:9876            used when nothing else is given
  rmq lag --profile prod                       or: export RMQ_PROFILE=prod
  rmq profile list
  rmq profile delete prod"""

ACTIONS: Final = ("list", "show", "set", "delete")
_SECRET_SHOWN: Final = "(not shown)"
_FILES: Final = ("secret_key_file", "tls_ca", "tls_cert", "tls_key")
_OF_SET: Final = ("namesrv", "access_key", "ask_secret", "tls", *_FILES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=ACTIONS, metavar="ACTION", help="list, show, set or delete"
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="the profile; not for list")
    parser.add_argument(
        "-n",
        "--namesrv",
        type=address_list,
        metavar="ADDRESSES",
        help="set: name servers as HOST:PORT, several separated by ;",
    )
    parser.add_argument(
        "--ask-secret",
        action="store_true",
        help="set: ask for the secret and keep it in the profile; without a terminal it is the "
        "first line of standard input",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("-y", "--yes", action="store_true", help="delete: do not ask")
    add_security_options(parser)


def run(options: argparse.Namespace) -> int:
    file = profile_file()
    if options.action == "list":
        if options.name:
            raise CommandFailed(f"list takes no name: rmq profile show {options.name:.60}", MISUSED)
        _refuse_settings(options)
        print_report(_list(file), options.json)
        return DONE
    if not options.name:
        raise CommandFailed(f"give the name: rmq profile {options.action} NAME", MISUSED)
    if options.action == "set":
        _set(file, options)
        return DONE
    _refuse_settings(options)
    profile = _found(file, options.name)
    if options.action == "show":
        print_report([Facts(_shown(options.name, profile))], options.json)
        return DONE
    if not options.yes:
        confirm(f"delete profile {options.name}")
    file.remove(options.name)
    print_report([Note(f"profile {options.name} is deleted")], options.json)
    return DONE


def _refuse_settings(options: argparse.Namespace) -> None:
    for name in _OF_SET:
        if getattr(options, name):
            raise CommandFailed(f"--{name.replace('_', '-')} is for set", MISUSED)


def _list(file: ProfileFile) -> Report:
    used = chosen_profile_name(None, False)
    profiles = file.read()
    rows = [
        (name, profile.namesrv, profile.access_key, profile.tls, name == used)
        for name, profile in sorted(profiles.items())
    ]
    note = Note(f"in {file.path}")
    return [Table(("profile", "nameServers", "account", "tls", "used"), rows), note]


def _found(file: ProfileFile, name: str) -> Profile:
    profiles = file.read()
    if name not in profiles:
        known = f"profiles are {', '.join(profiles)}" if profiles else "there are none"
        raise CommandFailed(f"no profile {name!r:.80} in {file.path}; {known}", MISUSED)
    return profiles[name]


def _shown(name: str, profile: Profile) -> dict[str, object]:
    values: dict[str, object] = {"profile": name}
    values.update({key.replace("_", "-"): value for key, value in asdict(profile).items() if value})
    if profile.secret_key:
        values["secret-key"] = _SECRET_SHOWN
    return values


def _set(file: ProfileFile, options: argparse.Namespace) -> None:
    """Write the profile; what is not given is not in it."""
    if not is_profile_name(options.name):
        text = f"{options.name!r:.80} is not a name of a profile: letters, digits, . _ -"
        raise CommandFailed(text, MISUSED)
    if not any(getattr(options, name) for name in _OF_SET):
        raise CommandFailed("nothing to set: give at least the name servers (-n)", MISUSED)
    paths = {name: getattr(options, name) for name in _FILES}
    profile = Profile(
        namesrv=";".join(options.namesrv or ()),
        access_key=options.access_key,
        secret_key=_asked_secret(options.name) if options.ask_secret else "",
        tls=options.tls,
        **{name: str(Path(given).absolute()) for name, given in paths.items() if given},
    )
    problem = profile.problem()
    if problem:
        raise CommandFailed(problem, MISUSED)
    is_new = options.name not in file.read()
    file.put(options.name, profile)
    verb = "written to" if is_new else "replaced in"
    hint = "" if options.name == PROFILE_DEFAULT else f"; use it: --profile {options.name}"
    print_report([Note(f"profile {options.name} {verb} {file.path}{hint}")], options.json)


def _asked_secret(name: str) -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        secret = getpass(f"secret of profile {name}: ")
    else:
        secret = sys.stdin.readline()
    secret = secret.strip()
    if not secret:
        raise CommandFailed("--ask-secret: no secret was given", MISUSED)
    return secret
