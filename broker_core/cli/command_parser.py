"""Options that several commands share, their types, and a parser with one-line errors."""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Final, NoReturn

from broker_core.cli.colours import paint
from broker_core.cli.exit_codes import MISUSED

NAME_SERVER_DEFAULT: Final = "127.0.0.1:9876"
# The same variable that RocketMQ's own tools read.
NAME_SERVER_VARIABLE: Final = "NAMESRV_ADDR"
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
LOG_FORMATS: Final = ("text", "json")

_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.%a-z]+\]|[^:\s\[\]]+):([0-9]{1,5})")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")


class CommandParser(argparse.ArgumentParser):
    """Help with the examples below the options; errors without the usage above them."""

    def __init__(self, program: str, summary: str, examples: str) -> None:
        super().__init__(
            prog=program,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=f"examples:\n{examples}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Print one line and exit."""
        label = paint("error:", "red", sys.stderr)
        sys.stderr.write(f"{self.prog}: {label} {message} ({self.prog} --help)\n")
        raise SystemExit(MISUSED)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Prints the value once per option, as newer versions of Python do."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28, width=80)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        names = ", ".join(action.option_strings)
        if not action.option_strings or action.nargs == 0:
            return names or super()._format_action_invocation(action)
        return f"{names} {action.metavar or action.dest.upper()}"


# Types of option values; argparse shows the text of the error.


def address(text: str) -> str:
    """`host:port` or `[ipv6]:port`."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found[2]) > 65_535:
        scheme, slashes, _ = text.rpartition("://")
        hint = f"; leave out {scheme}{slashes}" if slashes else ""
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not HOST:PORT{hint:.40}")
    return found[0]


def address_list(text: str) -> tuple[str, ...]:
    """Addresses separated by `;` or `,`."""
    return tuple(address(part) for part in re.split("[;,]", text) if part.strip()) or (
        address(text),
    )


def host_and_port(checked: str) -> tuple[str, int]:
    """Both parts of a text that `address` has checked."""
    host, _, port = checked.rpartition(":")
    return host.strip("[]"), int(port)


def shown_address(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def key_and_value(text: str) -> tuple[str, str]:
    """`KEY=VALUE`; the value may be empty and contain `=`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not KEY=VALUE")
    return key.strip(), value


def count(text: str) -> int:
    """A whole number from 1."""
    if not _WHOLE_NUMBER.fullmatch(text) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a whole number from 1")
    return int(text)


def port(text: str) -> int:
    """A port, 0 = any free one."""
    if not _WHOLE_NUMBER.fullmatch(text) or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a port from 0 to 65535")
    return int(text)


def topic_name(text: str) -> str:
    """A name that a topic can have."""
    from broker_core.codec.wire.topic_name import topic_name_problem

    problem = topic_name_problem(text)
    if problem is not None:
        raise argparse.ArgumentTypeError(f"{text!r:.140}: {problem}")
    return text


# Groups of options


def add_process_options(parser: argparse.ArgumentParser) -> None:
    """Options that every server has."""
    group = parser.add_argument_group("process")
    group.add_argument(
        "--pid-file", type=Path, metavar="FILE", help="write the process id here while it serves"
    )
    group.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that started this one ends, or closes the pipe that is "
        "standard input here",
    )
    group.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default="info",
        metavar="LEVEL",
        help=f"{', '.join(LOG_LEVELS)}; logs go to stderr (default: info)",
    )
    group.add_argument(
        "--log-format",
        choices=LOG_FORMATS,
        default="text",
        metavar="FORMAT",
        help="text, or json: one object per line (default: text)",
    )


def name_servers(given: tuple[str, ...]) -> tuple[str, ...]:
    """From `--namesrv`, else the environment, else this machine."""
    if given:
        return given
    text = os.environ.get(NAME_SERVER_VARIABLE, "").strip()
    try:
        return address_list(text or NAME_SERVER_DEFAULT)
    except argparse.ArgumentTypeError as error:
        from broker_core.cli.exit_codes import CommandFailed

        raise CommandFailed(f"{NAME_SERVER_VARIABLE}: {error}", MISUSED) from None
