"""`rmq produce`: each line of standard input becomes a message."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from broker_core.cli.client_session import cluster_errors, run_client
from broker_core.cli.cluster_options import add_cluster_options, given_cluster
from broker_core.cli.command_parser import count, key_and_value, topic_name
from broker_core.cli.exit_codes import DONE, FAILED
from broker_core.cli.messages.format import parse_format
from broker_core.cli.messages.input_lines import line_groups
from broker_core.cli.messages.line_sender import LineSender, LineShape
from broker_core.client.connection.config import ClientConfig
from broker_core.client.produce.producer import Producer
from broker_core.errors import RmqError
from broker_core.runtime.clock import Clock, SystemClock

EXAMPLES: Final = """\
  seq 10 | rmq produce -t numbers
  rmq produce -t orders -K : --tags new < orders.txt     lines like KEY:BODY
  rmq consume -t orders -J -e | rmq produce -t copy -J   with keys and tags
  rmq produce -t log --batch 500 --property host=web1 < access.log"""

_GROUP: Final = "RMQ_PRODUCE"
_SHOWN_EVERY_S: Final = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-t", "--topic", type=topic_name, required=True, help="the topic")
    add_cluster_options(parser)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument(
        "-J",
        "--json",
        action="store_true",
        help="each line is a JSON object, as rmq consume -J prints it",
    )
    shape.add_argument(
        "-K",
        "--key-separator",
        type=_separator,
        metavar="TEXT",
        help="what is before the first TEXT of a line is the message's key",
    )
    parser.add_argument("--tags", default="", metavar="TAG", help="the tag of every message")
    parser.add_argument(
        "--property",
        type=key_and_value,
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="a property of every message; may be repeated",
    )
    parser.add_argument(
        "--sharding-key",
        metavar="TEXT",
        help="messages with the same TEXT go to the same queue, in order",
    )
    parser.add_argument(
        "-D",
        "--delimiter",
        type=_delimiter,
        default=b"\n",
        metavar="TEXT",
        help="what separates messages in the input; \\n, \\r, \\t, \\0 and \\xHH as in C "
        "(default: the end of a line)",
    )
    parser.add_argument(
        "--batch",
        type=count,
        default=1,
        metavar="N",
        help="send up to N lines, at most 1000, in one request: faster; they go to the same queue "
        "(default: 1)",
    )
    parser.add_argument(
        "--delay",
        type=count,
        default=0,
        metavar="LEVEL",
        help="deliver later; levels 1 to 18 are 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h",
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="print errors only")


def run(options: argparse.Namespace) -> int:
    """Send everything; success means that everything was acknowledged."""
    return run_client(_produce(options))


async def _produce(options: argparse.Namespace) -> int:
    servers, security = given_cluster(options)
    shape = LineShape(
        options.topic,
        _separator_bytes(options.key_separator),
        options.tags,
        dict(options.properties),
        options.delay,
        options.json,
        options.sharding_key,
    )
    clock = SystemClock()
    progress = _Progress(clock, not options.quiet)
    failure: RmqError | None = None
    with cluster_errors(options.topic, servers):
        config = ClientConfig(servers, compress_from_size=0, **security)
        async with Producer(config, _GROUP) as producer:
            sender = LineSender(producer, shape, options.batch)
            try:
                async for lines in line_groups(_read_input, options.delimiter):
                    await sender.send(lines)
                    progress.show(sender.acknowledged)
            except RmqError as error:
                failure = error
            finally:
                progress.clear()
            try:
                await sender.finish()
            except RmqError as error:
                failure = failure or error
        progress.end(sender.acknowledged, sender.read - sender.acknowledged)
        if failure is not None:
            raise failure
    return DONE if sender.acknowledged == sender.read else FAILED


def _read_input(size: int) -> bytes:
    # Unbuffered: returns partial input, and holds no lock when the process ends during a read.
    return sys.stdin.buffer.raw.read(size)  # type: ignore[no-any-return, union-attr]


def _separator(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("give at least one character")
    return text


def _delimiter(text: str) -> bytes:
    try:
        found = parse_format(text.replace("%", "%%"))(None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not found:
        raise argparse.ArgumentTypeError("give at least one character")
    return found


def _separator_bytes(text: str | None) -> bytes | None:
    # The bytes that the shell passed, in any encoding.
    return None if text is None else text.encode("utf-8", "surrogateescape")


class _Progress:
    """Progress on a terminal; a file gets the last line only."""

    def __init__(self, clock: Clock, is_wanted: bool) -> None:
        self._clock = clock
        self._is_wanted = is_wanted
        self._is_live = is_wanted and sys.stderr.isatty()
        self._started = clock.monotonic()
        self._shown_at = self._started

    def show(self, acknowledged: int) -> None:
        """A line that replaces itself."""
        now = self._clock.monotonic()
        if self._is_live and now - self._shown_at >= _SHOWN_EVERY_S:
            self._shown_at = now
            sys.stderr.write(f"\r{acknowledged:,} acknowledged")
            sys.stderr.flush()

    def clear(self) -> None:
        """Erase the progress line."""
        if self._is_live:
            sys.stderr.write("\r\x1b[K")

    def end(self, acknowledged: int, failed: int) -> None:
        """Print the result."""
        if not self._is_wanted:
            return
        seconds = self._clock.monotonic() - self._started
        not_so = f", {failed} not" if failed else ""
        sys.stderr.write(f"rmq produce: {acknowledged} acknowledged{not_so} in {seconds:.2f} s\n")
