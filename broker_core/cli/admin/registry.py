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
        "clusters and the state of their brokers",
        ("clusters", "clusterList"),
    ),
    "broker status": AdminEntry(
        f"{_ADMIN}.brokers:STATUS", "all statistics of a broker", ("brokerStatus",)
    ),
    "broker config": AdminEntry(
        f"{_ADMIN}.brokers:CONFIG", "settings of a broker", ("getBrokerConfig",)
    ),
    "broker set": AdminEntry(
        f"{_ADMIN}.brokers:SET", "change settings of a running broker", ("updateBrokerConfig",)
    ),
    "broker backlog": AdminEntry(
        f"{_ADMIN}.brokers:BACKLOG", "lag of all groups of a broker", ("brokerConsumeStats",)
    ),
    "broker stats": AdminEntry(
        f"{_ADMIN}.brokers:STATS", "one statistic of the last minute, hour and day"
    ),
    "broker drain": AdminEntry(
        f"{_ADMIN}.brokers:WIPE", "stop producers from using a broker", ("wipeWritePerm",)
    ),
    "broker undrain": AdminEntry(
        f"{_ADMIN}.brokers:ALLOW", "allow producers to use a broker again", ("addWritePerm",)
    ),
    "broker clean-queues": AdminEntry(
        f"{_ADMIN}.brokers:CLEAN_QUEUES", "remove expired queue files", ("cleanExpiredCQ",)
    ),
    "broker clean-topics": AdminEntry(
        f"{_ADMIN}.brokers:CLEAN_TOPICS",
        "remove queues of deleted topics",
        ("cleanUnusedTopic",),
    ),
    "broker clean-log": AdminEntry(
        f"{_ADMIN}.brokers:CLEAN_LOG", "remove expired log files", ("deleteExpiredCommitLog",)
    ),
    "ha": AdminEntry(
        f"{_ADMIN}.ha:HA",
        "replication state: masters, slaves and their lag",
        ("haStatus",),
    ),
    "promote": AdminEntry(
        f"{_ADMIN}.ha:PROMOTE",
        "make a slave the master of its name",
    ),
    "topic list": AdminEntry(f"{_ADMIN}.topics:LIST", "list topics", ("topics", "topicList")),
    "topic create": AdminEntry(
        f"{_ADMIN}.topics:CREATE", "create or change a topic", ("updateTopic",)
    ),
    "topic show": AdminEntry(f"{_ADMIN}.topics:SHOW", "configuration of a topic"),
    "topic permission": AdminEntry(
        f"{_ADMIN}.topics:PERMISSION",
        "set whether a topic can be read and written",
        ("updateTopicPerm",),
    ),
    "topic delete": AdminEntry(
        f"{_ADMIN}.topics:DELETE", "delete a topic and its messages", ("deleteTopic",)
    ),
    "topic status": AdminEntry(
        f"{_ADMIN}.topics:STATUS", "offsets of the queues of a topic", ("topicStatus",)
    ),
    "topic route": AdminEntry(
        f"{_ADMIN}.topics:ROUTE", "brokers and queues of a topic", ("topicRoute",)
    ),
    "topic clusters": AdminEntry(
        f"{_ADMIN}.topics:CLUSTERS", "clusters that have a topic", ("topicClusterList",)
    ),
    "topic groups": AdminEntry(f"{_ADMIN}.topics:GROUPS", "groups that consume a topic"),
    "topic stats": AdminEntry(f"{_ADMIN}.topics:STATS", "rates and lag of topics", ("statsAll",)),
    "topic order": AdminEntry(
        f"{_ADMIN}.name_servers:ORDER",
        "queues for ordered messages of a topic",
        ("updateOrderConf",),
    ),
    "group list": AdminEntry(f"{_ADMIN}.groups:LIST", "list consumer groups", ("groups",)),
    "group create": AdminEntry(
        f"{_ADMIN}.groups:CREATE", "create or change a consumer group", ("updateSubGroup",)
    ),
    "group show": AdminEntry(
        f"{_ADMIN}.groups:SHOW", "configuration of a consumer group", ("getConsumerConfig",)
    ),
    "group delete": AdminEntry(
        f"{_ADMIN}.groups:DELETE", "delete a consumer group and its offsets", ("deleteSubGroup",)
    ),
    "group progress": AdminEntry(
        f"{_ADMIN}.groups:PROGRESS", "offsets and lag of a group", ("consumerProgress",)
    ),
    "group connections": AdminEntry(
        f"{_ADMIN}.groups:CONNECTIONS", "connected members of a group", ("consumerConnection",)
    ),
    "group running": AdminEntry(
        f"{_ADMIN}.groups:RUNNING", "running state of the members of a group", ("consumerStatus",)
    ),
    "group brokers": AdminEntry(f"{_ADMIN}.groups:BROKERS", "brokers that know a group"),
    "producer connections": AdminEntry(
        f"{_ADMIN}.groups:PRODUCER_CONNECTIONS",
        "connected members of a producer group",
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
        f"{_ADMIN}.offsets:CLONE", "copy the offsets of another group", ("cloneGroupOffset",)
    ),
    "offset positions": AdminEntry(
        f"{_ADMIN}.offsets:POSITIONS",
        "positions that the members of a group report",
        ("getConsumerStatus",),
    ),
    "message show": AdminEntry(
        f"{_ADMIN}.messages:BY_ID",
        "a message by its id, and the groups that consumed it",
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
    "kv list": AdminEntry(f"{_ADMIN}.name_servers:KV_LIST", "list the keys of a namespace"),
    "kv put": AdminEntry(f"{_ADMIN}.name_servers:KV_PUT", "set a key", ("updateKvConfig",)),
    "kv delete": AdminEntry(
        f"{_ADMIN}.name_servers:KV_DELETE", "delete a key", ("deleteKvConfig",)
    ),
    "namesrv config": AdminEntry(
        f"{_ADMIN}.name_servers:CONFIG", "settings of the name servers", ("getNamesrvConfig",)
    ),
    "namesrv set": AdminEntry(
        f"{_ADMIN}.name_servers:SET",
        "change settings of the name servers",
        ("updateNamesrvConfig",),
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
    from difflib import get_close_matches

    same = [name for name in ADMIN_COMMANDS if name.split()[0] == first]
    if same:
        verbs = {name.partition(" ")[2]: name for name in same}
        near = get_close_matches(" ".join(words[1:2]).lower(), verbs, 1)
        return [verbs[verb] for verb in near] or same
    known = {alias.lower(): alias for entry in ADMIN_COMMANDS.values() for alias in entry.aliases}
    known |= {name: name for name in ADMIN_COMMANDS} | {n.split()[0]: n for n in ADMIN_COMMANDS}
    near = get_close_matches(" ".join(words[:2]).lower(), known, 3)
    near += [name for name in get_close_matches(first, known, 3) if name not in near]
    return [known[name] for name in near]
