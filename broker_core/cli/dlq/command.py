"""`rmq dlq`: lists, shows and replays dead letters."""

from __future__ import annotations

import argparse
from typing import Any, Final

from broker_core.cli.admin.report import EpochMs, Note, Report, Table, print_report
from broker_core.cli.admin.session import (
    AdminSession,
    add_session_options,
    admin_session,
    group_option,
    topic_option,
)
from broker_core.cli.client_session import connection_failure, run_client
from broker_core.cli.command_parser import count
from broker_core.cli.exit_codes import DONE, MISUSED, CommandFailed
from broker_core.client.dead_letters.dead_letters import REPLAY_GROUP, DeadLetters, Replayed
from broker_core.client.dead_letters.letter import DeadLetter, dead_letter_topic
from broker_core.client.pull.message_display import body_text
from broker_core.errors import ConnectionLost, GroupNotExist, RmqError, TopicNotExist

EXAMPLES: Final = """\
  rmq dlq list                               all dead letters
  rmq dlq show -g billing                    those that were not replayed
  rmq dlq replay -g billing --dry-run        what it would send, and where
  rmq dlq replay -g billing --max 1          one message first
  rmq dlq replay -t orders-bad --to orders   an application's dead letters"""

ACTIONS: Final = ("list", "show", "replay")
_SHOWN_COUNT: Final = 32
_BODY_SHOWN: Final = 60
# Option -> the actions that have it.
_ONLY: Final = {
    "all": ("show",),
    "max": ("show", "replay"),
    "to": ("replay",),
    "dry_run": ("replay",),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help="list, show or replay")
    group_option(parser, required=False)
    topic_option(parser, required=False)
    parser.add_argument(
        "--max",
        type=count,
        metavar="N",
        help=f"show or replay at most N messages (default: show {_SHOWN_COUNT}, replay all)",
    )
    parser.add_argument("--all", action="store_true", help="show those that were replayed, too")
    parser.add_argument(
        "--to", metavar="TOPIC", help="replay to this topic (default: its original topic)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what a replay would send, send nothing"
    )
    add_session_options(parser)


def run(options: argparse.Namespace) -> int:
    for name, actions in _ONLY.items():
        if getattr(options, name) and options.action not in actions:
            option = f"--{name.replace('_', '-')}"
            raise CommandFailed(f"{option} is for {' and '.join(actions)}", MISUSED)
    if options.group and options.topic:
        raise CommandFailed("give -g or -t, not both", MISUSED)
    if options.action != "list" and not (options.group or options.topic):
        text = "give the consumer group (-g) or the dead-letter topic (-t)"
        raise CommandFailed(text, MISUSED)
    return run_client(_perform(options))


async def _perform(options: argparse.Namespace) -> int:
    async with admin_session(options) as session:
        try:
            if options.action == "list":
                report = await _list(session, options)
            elif options.action == "show":
                report = await _show(session, options)
            else:
                report = await _replay(session, options)
        except ConnectionLost as error:
            raise CommandFailed(connection_failure(error)) from None
        except TopicNotExist as error:
            text = f"{error}. rmq dlq list shows the groups that have dead letters"
            raise CommandFailed(text) from None
        except GroupNotExist as error:
            text = f"{error}. Create the group: rmq admin group create -g {REPLAY_GROUP}"
            raise CommandFailed(text) from None
    print_report(report, options.json)
    return DONE


def _topic(options: argparse.Namespace) -> str:
    return str(options.topic or dead_letter_topic(options.group))


# list


async def _list(session: AdminSession, options: argparse.Namespace) -> Report:
    letters = DeadLetters(session.admin.client)
    names = (_topic(options),) if options.group or options.topic else ()
    rows = [
        (found.group, found.topic, None, None, None, found.problem)
        if found.problem
        else (found.group, found.topic, found.queues, found.messages, found.waiting, "")
        for found in await letters.topics(*names)
    ]
    columns = ("group", "topic", "queues", "messages", "waiting", "problem")
    return [Table(columns, rows)]


# show


async def _show(session: AdminSession, options: argparse.Namespace) -> Report:
    letters = DeadLetters(session.admin.client)
    found = await letters.read(
        _topic(options), max_count=options.max or _SHOWN_COUNT, replayed=options.all
    )
    columns = [
        "broker", "queue", "offset", "messageId", "originTopic", "originMessageId", "retries",
        "storeTime", "tags", "keys", "reason", "body",
    ]  # fmt: skip
    rows = [_shown(letter, options.json) for letter in found]
    if options.json:
        columns.append("properties")
    return [Table(tuple(columns), rows)]


def _shown(letter: DeadLetter, whole: bool) -> tuple[Any, ...]:
    message = letter.message
    try:
        body = body_text(message.body)[0]
    except RmqError as error:
        body = f"({error})"
    if not whole and len(body) > _BODY_SHOWN:
        body = f"{body[:_BODY_SHOWN]}…"
    row = (
        letter.queue.broker_name, letter.queue.queue_id, letter.offset, message.message_id,
        letter.origin_topic, letter.origin_message_id, letter.reconsume_times,
        EpochMs(message.store_timestamp), message.tags, message.keys, letter.reason, body,
    )  # fmt: skip
    return (*row, dict(message.properties)) if whole else row


# replay


async def _replay(session: AdminSession, options: argparse.Namespace) -> Report:
    letters = DeadLetters(session.admin.client)
    done: list[Replayed] = []
    try:
        await letters.replay(
            _topic(options),
            to=options.to,
            max_count=options.max,
            dry_run=options.dry_run,
            on_sent=done.append,
        )
    except RmqError:
        # The error follows on stderr; these were sent and recorded.
        if done:
            print_report(_replay_report(done, options.dry_run), options.json)
        raise
    return _replay_report(done, options.dry_run)


def _replay_report(done: list[Replayed], is_dry: bool) -> Report:
    columns = ("deadLetter", "messageId", "to", "broker", "queue", "offset")
    rows = []
    for item in done:
        place: tuple[Any, ...] = (None, None, None)
        if item.result is not None:
            queue = item.result.queue
            place = queue.broker_name, queue.queue_id, item.result.queue_offset
        rows.append((item.place, item.message_id, item.target, *place))
    what = "would be replayed" if is_dry else "replayed"
    return [Table(columns, rows), Note(f"{what}: {len(done)}")]
