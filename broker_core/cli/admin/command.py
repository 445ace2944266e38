"""`rmq admin`: finds the command, runs it against the cluster, prints its report."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from broker_core.cli.admin.confirmation import confirm
from broker_core.cli.admin.registry import (
    ADMIN_COMMANDS,
    AdminVerb,
    commands_of,
    find_command,
    similar_commands,
)
from broker_core.cli.admin.report import print_report
from broker_core.cli.admin.session import add_session_options, admin_session
from broker_core.cli.client_session import connection_failure, run_client
from broker_core.cli.command_parser import CommandParser
from broker_core.cli.exit_codes import DONE, MISUSED, CommandFailed
from broker_core.errors import (
    ConnectionLost,
    ConsumerNotOnline,
    RequestNotSupported,
    TopicNotExist,
    explained,
)

_HELP: Final = """\
usage: rmq admin COMMAND [OPTION ...]

Show and change a RocketMQ cluster: ours, or Apache's 4.9 and 5.x.

{commands}

mqadmin's names work, too: rmq admin topicStatus -t orders.
rmq admin COMMAND --help explains a command; --json prints JSON, -n names the
name servers.

examples:
  rmq admin topic create -t orders -q 8
  rmq admin group progress -g billing
  rmq admin offset reset -g billing -t orders --to 2026-11-16T08:00:00
"""


def run_words(words: list[str]) -> int:
    """Run the command that `words` name; returns the exit code."""
    if not words:
        sys.stderr.write(admin_help())
        return MISUSED
    if words[0] in ("-h", "--help", "help"):
        sys.stdout.write(admin_help())
        raise SystemExit(DONE)
    if words[-1] in ("-h", "--help", "help") and len(words) == 2 and commands_of(words[0].lower()):
        sys.stdout.write(subject_help(words[0].lower()))
        raise SystemExit(DONE)
    found = find_command(words)
    if found is None:
        if len(words) == 1 and commands_of(words[0].lower()):
            sys.stderr.write(subject_help(words[0].lower()))
            return MISUSED
        near = similar_commands(words)
        hint = f"; did you mean {', '.join(near)}?" if near else " (rmq admin --help lists them)"
        text = f"unknown command {' '.join(words[:2])!r:.80}{hint}"
        raise CommandFailed(text, MISUSED)
    name, entry, rest = found
    verb = entry.load()
    parser = CommandParser(f"rmq admin {name}", entry.summary, verb.examples)
    verb.add_arguments(parser)
    if verb.question is not None:
        parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    add_session_options(parser)
    options = parser.parse_args(rest)
    # The aliases of mqadmin ask for no confirmation, as mqadmin itself: scripts use them.
    is_of_mqadmin = words[0].lower() != name.split()[0]
    if verb.question is not None and not options.yes and not is_of_mqadmin:
        confirm(verb.question(options))
    return run_client(_perform(verb, options))


async def _perform(verb: AdminVerb, options: argparse.Namespace) -> int:
    async with admin_session(options) as session:
        try:
            report = await verb.run(session, options)
        except ConnectionLost as error:
            raise CommandFailed(connection_failure(error)) from None
        except TopicNotExist as error:
            text = f"{str(error).splitlines()[0]}: rmq admin topic list shows those that exist"
            raise CommandFailed(explained(text, "topic-not-found")) from None
        except ConsumerNotOnline as error:
            text = f"{error}. The group has no consumer that is connected now"
            raise CommandFailed(text) from None
        except RequestNotSupported as error:
            raise CommandFailed(f"this broker cannot do that: {error}") from None
    print_report(report, options.json)
    return DONE


def subject_help(subject: str) -> str:
    """The commands of one subject."""
    commands = commands_of(subject)
    width = max(map(len, commands))
    lines = [f"  {name:{width}}  {entry.summary}" for name, entry in commands.items()]
    usage = f"usage: rmq admin {subject} COMMAND [OPTION ...]"
    end = f"rmq admin {subject} COMMAND --help explains a command."
    return "\n".join([usage, "", *lines, "", end, ""])


def admin_help() -> str:
    """The list of commands, grouped by subject."""
    width = max(map(len, ADMIN_COMMANDS), default=0)
    lines: list[str] = []
    subject = ""
    for name, entry in ADMIN_COMMANDS.items():
        first = name.split()[0]
        if subject and first != subject:
            lines.append("")
        subject = first
        lines.append(f"  {name:{width}}  {entry.summary}")
    return _HELP.format(commands="\n".join(lines))
