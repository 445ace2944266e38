"""Every command of `rmq admin`: its name, where it is, and the names that `mqadmin` has for it.

How a command is added:

1. In a module of `broker_core/cli/` make an `AdminVerb`: the options it adds to its parser, an
   `async` function that gets an `AdminSession` (`session.admin` is a started client, `session`
   also has the clock and the name servers) with the parsed options and returns a `Report`, and
   examples for its help. Options that all commands have (`-n`, `--json`, `--timeout`) are there
   already. What the function raises becomes one line on stderr and exit code 1.
2. Add an entry to `ADMIN_COMMANDS`: one or two words -> `AdminEntry("module:NAME", summary,
   aliases)`. An alias is one word; `mqadmin`'s name belongs there. Case does not matter in them.

Modules are imported when their command is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from broker_core.cli.admin_report import Report

if TYPE_CHECKING:
    from broker_core.cli.admin_session import AdminSession


class AdminVerb(NamedTuple):
    """What a command is made of; `run` says what to print."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[AdminSession, argparse.Namespace], Awaitable[Report]]
    examples: str


class AdminEntry(NamedTuple):
    """Where a command is, what it does in one line, and what else it is called."""

    place: str
    summary: str
    aliases: tuple[str, ...] = ()

    def load(self) -> AdminVerb:
        """Import its module."""
        module, _, name = self.place.partition(":")
        verb: AdminVerb = getattr(import_module(module), name)
        return verb


_CLI: Final = "broker_core.cli"

ADMIN_COMMANDS: Final[dict[str, AdminEntry]] = {
    "cluster list": AdminEntry(
        f"{_CLI}.admin_clusters:LIST",
        "clusters, their brokers, and what these do now",
        ("clusters", "clusterList"),
    ),
    "ha": AdminEntry(
        f"{_CLI}.admin_ha:HA",
        "who copies from whom, and how far behind slaves are",
        ("haStatus",),
    ),
    "promote": AdminEntry(
        f"{_CLI}.admin_ha:PROMOTE",
        "make a slave the master of its name",
    ),
}


def find_command(words: Sequence[str]) -> tuple[str, AdminEntry, list[str]] | None:
    """The command that `words` begin with, by name or alias, and the words after it."""
    for length in (2, 1):
        name = " ".join(words[:length]).lower()
        if len(words) >= length and name in ADMIN_COMMANDS:
            return name, ADMIN_COMMANDS[name], list(words[length:])
    first = words[0].lower() if words else ""
    for name, entry in ADMIN_COMMANDS.items():
        if first in (alias.lower() for alias in entry.aliases):
            return name, entry, list(words[1:])
    return None


def similar_commands(words: Sequence[str]) -> list[str]:
    """What somebody may have meant: commands about the same thing, else those spelt alike."""
    first = words[0].lower() if words else ""
    same = [name for name in ADMIN_COMMANDS if name.split()[0] == first]
    if same:
        return same
    from difflib import get_close_matches

    known = {alias.lower(): alias for entry in ADMIN_COMMANDS.values() for alias in entry.aliases}
    known |= {name: name for name in ADMIN_COMMANDS} | {n.split()[0]: n for n in ADMIN_COMMANDS}
    near = get_close_matches(" ".join(words[:2]).lower(), known, 3)
    near += [name for name in get_close_matches(first, known, 3) if name not in near]
    return [known[name] for name in near]
