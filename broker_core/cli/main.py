"""`rmq`: finds the command, runs it, and turns its end into an exit code and at most one line.

Only the module of the given command is imported: imports are most of the start-up time.
"""

from __future__ import annotations

import errno
import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final, NamedTuple

from broker_core.cli.exit_codes import (
    DONE,
    FAILED,
    INTERRUPTED,
    MISUSED,
    OUTPUT_CLOSED,
    CommandFailed,
)
from broker_core.errors import InvalidArgument, InvalidConfig, NoPermission, RmqError, explained


class Command(NamedTuple):
    """The module of a command, and a one-line summary."""

    module: str
    summary: str


COMMANDS: Final = {
    "quickstart": Command(
        "broker_core.cli.live.quickstart",
        "a broker with a topic and messages, and what to try next",
    ),
    "standalone": Command(
        "broker_core.cli.servers.standalone",
        "name server and broker in one process, for tests and a first try",
    ),
    "cluster": Command(
        "broker_core.cli.servers.cluster",
        "masters and slaves on this machine, each in a process of its own",
    ),
    "namesrv": Command(
        "broker_core.cli.servers.namesrv", "name server: tells clients which broker has a topic"
    ),
    "broker": Command("broker_core.cli.servers.broker", "broker: stores and delivers messages"),
    "produce": Command(
        "broker_core.cli.messages.produce", "send each line of standard input as a message"
    ),
    "consume": Command("broker_core.cli.messages.consume", "print the messages of a topic"),
    "lag": Command("broker_core.cli.live.lag", "the lag of consumer groups"),
    "top": Command("broker_core.cli.live.top", "topics, rates, sizes and lag, live"),
    "dlq": Command("broker_core.cli.dlq.command", "list, show and replay dead letters"),
    "store": Command(
        "broker_core.cli.store.check", "check the files of a store that is not running"
    ),
    "profile": Command(
        "broker_core.cli.profiles.command", "named clusters with their account and TLS settings"
    ),
    # The connector's; it is found by its name.
    "doctor": Command(
        "pyspark_rmq.environment.doctor",
        "check Python, Java, Spark and servers, and say what to repair",
    ),
    "explain": Command(
        "broker_core.cli.live.explain", "the section of docs/errors.md that an error names"
    ),
    "completion": Command(
        "broker_core.cli.live.completion", "a script that completes commands in your shell"
    ),
    "admin": Command(
        "broker_core.cli.admin.command", "show and change topics, groups, offsets, brokers"
    ),
}

_PORT_OPTIONS: Final = {
    "standalone": "--port or --broker-port",
    "namesrv": "--listen",
    "broker": "-p listenPort=PORT",
    "cluster": "--port",
}

_HELP: Final = """\
usage: rmq COMMAND [OPTION ...]

A message broker that speaks RocketMQ's protocol, its name server, and tools to
send, read and administer from a shell.

commands:
{commands}

A first try, in two terminals:
  rmq standalone
  seq 10 | rmq produce -t numbers && rmq consume -t numbers --exit-at-end

rmq COMMAND --help explains a command, rmq --version tells the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `rmq` with `arguments` (default: those of the process); the exit code."""
    if arguments is not None:
        return _main(list(arguments))
    for stream in (sys.stdout, sys.stderr):
        # An encoding without a character of a text, such as Latin-1, is no reason to fail.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    return _main(sys.argv[1:])


def _main(words: list[str]) -> int:
    if not words:
        sys.stderr.write(_help())
        return MISUSED
    first = words[0]
    if first == "help" and len(words) > 1:
        return main([*words[1:], "--help"])
    if first in ("-h", "--help", "help"):
        return _print(_help())
    if first in ("-V", "--version", "version"):
        return _print(f"{_version()}\n")
    if first not in COMMANDS:
        _complain("rmq", _unknown(first))
        return MISUSED
    return _run(first, words[1:])


def _print(text: str) -> int:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        return _output_failed("rmq", error)
    return DONE


def _output_failed(program: str, error: OSError) -> int:
    """The exit code when standard output cannot be written."""
    _forget_output()
    if isinstance(error, BrokenPipeError):
        return OUTPUT_CLOSED
    _complain(program, str(error))
    return FAILED


def _run(name: str, words: list[str]) -> int:
    from broker_core.cli.command_parser import CommandParser

    command = COMMANDS[name]
    program = f"rmq {name}"
    try:
        module = _imported(command.module)
        if name == "admin":
            return int(module.run_words(words))
        parser = CommandParser(program, command.summary, module.EXAMPLES)
        module.add_arguments(parser)
        return _ended(int(module.run(parser.parse_args(words))))
    except CommandFailed as error:
        _complain(program, str(error))
        return error.exit_code
    except (InvalidConfig, InvalidArgument) as error:
        _complain(program, str(error))
        return MISUSED
    except BrokenPipeError as error:
        return _output_failed(program, error)
    except RmqError as error:
        text = str(error)
        if isinstance(error, NoPermission) and error.is_of_account:
            text = explained(
                f"{text}. Compare --access-key and --secret-key-file, or those of the profile, with"
                " the accounts of the cluster",
                "access-denied",
            )
        _complain(program, text)
        return FAILED
    except OSError as error:
        _complain(program, _system_failure(name, error))
        return FAILED
    except KeyboardInterrupt:
        return _ended(INTERRUPTED)


def _system_failure(name: str, error: OSError) -> str:
    """The text of an error of the system, with the way on if a port is in use."""
    text = str(error)
    if error.filename is None and error.strerror:
        text = error.strerror
    if error.errno != errno.EADDRINUSE or not text.startswith("cannot listen on "):
        return text
    where, _, _ = text.rpartition(": ")
    way = _PORT_OPTIONS.get(name)
    return explained(
        f"{where}: another program uses this port. Stop it, or choose another port"
        f"{f' with {way}' if way else ''} (0 = any free one)",
        "port-in-use",
    )


def _imported(name: str) -> ModuleType:
    """Import the module without garbage collection: objects of imports live until the end."""
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    kind = "option" if word.startswith("-") else "command"
    if kind == "command":
        from broker_core.cli.admin.registry import commands_of, find_command

        if commands_of(word.lower()) or find_command([word]):
            return f"unknown command {word!r:.60}; did you mean rmq admin {word:.60}?"
    near = get_close_matches(word.lower(), COMMANDS, 1)
    known = f"did you mean rmq {near[0]}?" if near else f"commands are {', '.join(COMMANDS)}"
    return f"unknown {kind} {word!r:.60}; {known}"


def _complain(program: str, text: str) -> None:
    # One line, even if the text of a peer or the system has several.
    from broker_core.cli.colours import paint

    reason, link, anchor = text.rpartition("\nSee ")
    if link:
        text = f"{reason}{'' if reason.endswith(('.', '?')) else '.'} See {anchor}"
    sys.stderr.write(f"{program}: {paint('error:', 'red', sys.stderr)} {' '.join(text.split())}\n")


def _ended(code: int) -> int:
    # Terminals show ^C; the prompt comes below it.
    if code == INTERRUPTED and sys.stderr.isatty():
        sys.stderr.write("\n")
    return code


def _forget_output() -> None:
    # Otherwise the interpreter reports a failed flush at exit.
    try:
        sys.stdout.close()
    except OSError:
        return


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = (f"  {name:{width}}  {command.summary}" for name, command in COMMANDS.items())
    return _HELP.format(commands="\n".join(lines))


def _version() -> str:
    from platform import python_version

    from broker_core.codec.native import codec_backend
    from broker_core.version import installed_version

    return f"rmq {installed_version()} (codec {codec_backend()}, Python {python_version()})"
