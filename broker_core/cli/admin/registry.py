"""Every command of `rmq admin`: its name, its module, and the names that `mqadmin` has for it.

To add a command:

1. Make an `AdminVerb` in a module of this folder: the options it adds to its parser, an `async`
   function that takes an `AdminSession` and the parsed options and returns a `Report`, and examples
   for its help. `session.admin` is a started client; the session also has the clock and the name
   servers. All commands have the options `-n`, `--json` and `--timeout` already. An exception
   becomes one line on stderr and exit code 1.
2. Add an entry to `ADMIN_COMMANDS`: one or two words -> `AdminEntry("module:NAME", summary,
   aliases)`. An alias is one word, case-insensitive; add `mqadmin`'s name for the command.

A module is imported when one of its commands runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

from broker_core.cli.admin.report import Report

if TYPE_CHECKING:
    from broker_core.cli.admin.session import AdminSession


class AdminVerb(NamedTuple):
    """The parts of a command; `run` returns the report to print."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[AdminSession, argparse.Namespace], Awaitable[Report]]
    examples: str
    question: Callable[[argparse.Namespace], str] | None = None
    """What is asked before it runs; None: nothing."""


class AdminEntry(NamedTuple):
    """The place of a command, a one-line summary, and its aliases."""

    place: str
    summary: str
    aliases: tuple[str, ...] = ()

    def load(self) -> AdminVerb:
        """Import its module."""
        module, _, name = self.place.partition(":")
        verb: AdminVerb = getattr(import_module(module), name)
        return verb


_ADMIN: Final = "broker_core.cli.admin"

ADMIN_COMMANDS: Final[dict[str, AdminEntry]] = {
    "cluster list": AdminEntry(
        f"{_ADMIN}.clusters:LIST",
        "clusters, their brokers, and what these do now",
        ("clusters", "clusterList"),
    ),
    "broker status": AdminEntry(
        f"{_ADMIN}.brokers:STATUS", "everything that a broker counts", ("brokerStatus",)
    ),
    "broker config": AdminEntry(f"{_ADMIN}.brokers:CONFIG", "its settings", ("getBrokerConfig",)),
    "broker set": AdminEntry(
        f"{_ADMIN}.brokers:SET", "change settings while it runs", ("updateBrokerConfig",)
    ),
    "broker backlog": AdminEntry(
        f"{_ADMIN}.brokers:BACKLOG", "how far all groups are behind", ("brokerConsumeStats",)
    ),
    "broker stats": AdminEntry(
        f"{_ADMIN}.brokers:STATS", "a count of the last minute, hour and day"
    ),
    "broker drain": AdminEntry(
        f"{_ADMIN}.brokers:WIPE", "keep producers away from a broker", ("wipeWritePerm",)
    ),
    "broker undrain": AdminEntry(
        f"{_ADMIN}.brokers:ALLOW", "let producers come back", ("addWritePerm",)
    ),
    "broker clean-queues": AdminEntry(
        f"{_ADMIN}.brokers:CLEAN_QUEUES", "remove expired queue files", ("cleanExpiredCQ",)
    ),
    "broker clean-topics": AdminEntry(
        f"{_ADMIN}.brokers:CLEAN_TOPICS",
        "remove queues of topics that are gone",
        ("cleanUnusedTopic",),
    ),
    "broker clean-log": AdminEntry(
        f"{_ADMIN}.brokers:CLEAN_LOG", "remove expired log files", ("deleteExpiredCommitLog",)
    ),
    "ha": AdminEntry(
        f"{_ADMIN}.ha:HA",
        "who copies from whom, and how far behind slaves are",
        ("haStatus",),
    ),
    "promote": AdminEntry(
        f"{_ADMIN}.ha:PROMOTE",
        "make a slave the master of its name",
    ),
    "topic list": AdminEntry(
        f"{_ADMIN}.topics:LIST", "the topics there are", ("topics", "topicList")
    ),
    "topic create": AdminEntry(
        f"{_ADMIN}.topics:CREATE", "create a topic or change it", ("updateTopic",)
    ),
    "topic show": AdminEntry(f"{_ADMIN}.topics:SHOW", "how it is configured"),
    "topic permission": AdminEntry(
        f"{_ADMIN}.topics:PERMISSION", "allow reading, writing or both", ("updateTopicPerm",)
    ),
    "topic delete": AdminEntry(
        f"{_ADMIN}.topics:DELETE", "delete a topic and its messages", ("deleteTopic",)
    ),
    "topic status": AdminEntry(
        f"{_ADMIN}.topics:STATUS", "offsets of its queues", ("topicStatus",)
    ),
    "topic route": AdminEntry(f"{_ADMIN}.topics:ROUTE", "which brokers have it", ("topicRoute",)),
    "topic clusters": AdminEntry(
        f"{_ADMIN}.topics:CLUSTERS", "which clusters have it", ("topicClusterList",)
    ),
    "topic groups": AdminEntry(f"{_ADMIN}.topics:GROUPS", "who consumes it"),
    "topic stats": AdminEntry(
        f"{_ADMIN}.topics:STATS", "messages in, out and waiting", ("statsAll",)
    ),
    "topic order": AdminEntry(
        f"{_ADMIN}.name_servers:ORDER",
        "in which queues its ordered messages are",
        ("updateOrderConf",),
    ),
    "group list": AdminEntry(f"{_ADMIN}.groups:LIST", "the consumer groups there are", ("groups",)),
    "group create": AdminEntry(
        f"{_ADMIN}.groups:CREATE", "create a group or change it", ("updateSubGroup",)
    ),
    "group show": AdminEntry(
        f"{_ADMIN}.groups:SHOW", "how it is configured", ("getConsumerConfig",)
    ),
    "group delete": AdminEntry(
        f"{_ADMIN}.groups:DELETE", "delete a group and its progress", ("deleteSubGroup",)
    ),
    "group progress": AdminEntry(
        f"{_ADMIN}.groups:PROGRESS", "how far it has consumed", ("consumerProgress",)
    ),
    "group connections": AdminEntry(
        f"{_ADMIN}.groups:CONNECTIONS", "its members now", ("consumerConnection",)
    ),
    "group running": AdminEntry(
        f"{_ADMIN}.groups:RUNNING", "what its members are doing", ("consumerStatus",)
    ),
    "group brokers": AdminEntry(f"{_ADMIN}.groups:BROKERS", "where it is known"),
    "producer connections": AdminEntry(
        f"{_ADMIN}.groups:PRODUCER_CONNECTIONS",
        "the members of a producer group",
        ("producerConnection",),
    ),
    "producer list": AdminEntry(
        f"{_ADMIN}.groups:PRODUCERS", "all producers of a broker", ("producers", "producer")
    ),
    "offset reset": AdminEntry(
        f"{_ADMIN}.offsets:RESET",
        "move a group to a time or an offset",
        ("resetOffsetByTime", "resetOffsetByTimeOld"),
    ),
    "offset skip": AdminEntry(
        f"{_ADMIN}.offsets:SKIP", "move a group to the end", ("skipAccumulatedMessage",)
    ),
    "offset clone": AdminEntry(
        f"{_ADMIN}.offsets:CLONE", "move a group to where another is", ("cloneGroupOffset",)
    ),
    "offset positions": AdminEntry(
        f"{_ADMIN}.offsets:POSITIONS", "where its members say they are", ("getConsumerStatus",)
    ),
    "message show": AdminEntry(
        f"{_ADMIN}.messages:BY_ID",
        "a message by its id, and what became of it",
        ("queryMsgById", "queryMsgByUniqueKey"),
    ),
    "message by-key": AdminEntry(
        f"{_ADMIN}.messages:BY_KEY", "messages with a key", ("queryMsgByKey",)
    ),
    "message by-offset": AdminEntry(
        f"{_ADMIN}.messages:BY_OFFSET", "the message at an offset", ("queryMsgByOffset",)
    ),
    "message list": AdminEntry(
        f"{_ADMIN}.messages:PRINT",
        "the messages of a topic",
        ("printMsg", "printMsgByQueue", "consumeMessage"),
    ),
    "message send": AdminEntry(f"{_ADMIN}.messages:SEND", "send one message", ("sendMessage",)),
    "kv list": AdminEntry(f"{_ADMIN}.name_servers:KV_LIST", "keys of a namespace"),
    "kv put": AdminEntry(f"{_ADMIN}.name_servers:KV_PUT", "set a key", ("updateKvConfig",)),
    "kv delete": AdminEntry(
        f"{_ADMIN}.name_servers:KV_DELETE", "delete a key", ("deleteKvConfig",)
    ),
    "namesrv config": AdminEntry(
        f"{_ADMIN}.name_servers:CONFIG", "settings of the name servers", ("getNamesrvConfig",)
    ),
    "namesrv set": AdminEntry(
        f"{_ADMIN}.name_servers:SET", "change them", ("updateNamesrvConfig",)
    ),
}


def commands_of(subject: str) -> dict[str, AdminEntry]:
    """The commands whose first word is `subject`, if there are several words."""
    found = {name: entry for name, entry in ADMIN_COMMANDS.items() if name.split()[0] == subject}
    return found if any(" " in name for name in found) else {}


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
    """Suggestions for an unknown command: those of the same subject, else similar names."""
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
