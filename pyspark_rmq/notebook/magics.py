"""`%rmq` and `%%rmq`: after `%load_ext pyspark_rmq`.

    %rmq topics                   %rmq tail TOPIC [-n N]        %rmq lag [GROUP]
    %rmq watch QUERY              %rmq use NAME_OR_ADDRESS      %rmq
    %%rmq produce TOPIC [options of `rmq produce`], one message per line of the cell

Everything else is a command of `rmq`, run with the notebook's broker as its cluster.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from broker_core import Cluster, EmbeddedBroker, EmbeddedCluster, errors
from pyspark_rmq.notebook.live_progress import watch

_CLUSTERS: Final = (EmbeddedBroker, EmbeddedCluster, Cluster)
_LINES: Final = ("topics", "tail", "lag", "watch", "use")
_HELP: Final = """\
%rmq                          the cluster
%rmq topics [--system]        its topics
%rmq tail TOPIC [-n N]        the newest messages of a topic
%rmq lag [GROUP]              the lag of consumer groups
%rmq watch QUERY              the progress of a streaming query; --background goes on
%rmq use NAME                 choose a cluster: a variable, a shared broker or host:port
%%rmq produce TOPIC           one message per line of the cell; options of rmq produce
%rmq COMMAND …                a command of rmq; %rmq --help lists them
"""
# Commands that need no cluster; `doctor` checks one if there is one.
_LOCAL: Final = ("completion", "doctor", "explain", "help", "profile", "store")
_ASK_HELP: Final = frozenset({"-h", "--help"})
_NAME_SERVERS: Final = "NAMESRV_ADDR"
_PROFILE: Final = "RMQ_PROFILE"


class _Parser(argparse.ArgumentParser):
    """Reports misuse as an error instead of ending the kernel."""

    def __init__(self, program: str) -> None:
        super().__init__(program, add_help=False)

    def error(self, message: str) -> NoReturn:
        raise errors.InvalidArgument(f"{message}; {self.format_usage().strip()}")


class RmqMagic:
    """The magic of one shell."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._used: Any = None
        self._commands: Mapping[str, Callable[[Sequence[str]], Any]] = {
            "topics": self._topics,
            "tail": self._tail,
            "lag": self._lag,
            "watch": self._watch,
            "use": self._use,
        }

    def __call__(self, line: str, cell: str | None = None) -> Any:
        """Run one line, with the text of the cell below it. Errors are shown without a stack."""
        from IPython.core.error import UsageError

        try:
            return self._called(line, cell)
        except errors.RmqError as error:
            raise UsageError(f"%rmq: {error}") from None

    def _called(self, line: str, cell: str | None) -> Any:
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise errors.InvalidArgument(f"{line}: {error}") from None
        if not words:
            return self._cluster()
        own = self._commands.get(words[0])
        is_general = words[0] == "help" or words[0] in _ASK_HELP
        if is_general or (own is not None and _ASK_HELP & set(words)):
            sys.stdout.write(_HELP)
            if is_general:
                sys.stdout.write("\n")
                self._run(words, None)
            return None
        if own is not None and cell is None:
            return own(words[1:])
        _check_known(words[0], cell)
        if words[0] == "produce" and len(words) > 1 and not words[1].startswith("-"):
            words[1:2] = ["-t", words[1]]
        if words[0] == "produce" and cell is None and not _ASK_HELP & set(words):
            raise errors.InvalidArgument("give the messages in a cell: write it with %%")
        return self._run(words, cell)

    def _topics(self, words: Sequence[str]) -> Any:
        parser = _Parser("%rmq topics")
        parser.add_argument("--system", action="store_true")
        return self._cluster().topics(system=parser.parse_args(words).system)

    def _tail(self, words: Sequence[str]) -> Any:
        parser = _Parser("%rmq tail")
        parser.add_argument("topic")
        parser.add_argument("-n", type=int, default=10)
        options = parser.parse_args(words)
        return self._cluster().topic(options.topic).tail(options.n)

    def _lag(self, words: Sequence[str]) -> Any:
        parser = _Parser("%rmq lag")
        parser.add_argument("group", nargs="?", default="")
        return self._cluster().lag(parser.parse_args(words).group)

    def _watch(self, words: Sequence[str]) -> Any:
        parser = _Parser("%rmq watch")
        parser.add_argument("query")
        parser.add_argument("--background", action="store_true")
        options = parser.parse_args(words)
        watched = watch(self._query(options.query), background=options.background)
        # The result is already displayed.
        return watched if options.background else None

    def _use(self, words: Sequence[str]) -> Any:
        parser = _Parser("%rmq use")
        parser.add_argument("cluster", help="variable, shared broker or address")
        name = parser.parse_args(words).cluster
        found = self._shell.user_ns.get(name)
        if isinstance(found, _CLUSTERS):
            self._used = found
        elif ":" in name:
            self._used = Cluster(name)
        elif found is not None or "." in name:
            raise errors.InvalidArgument(
                f"{name!r:.80} is neither a broker nor a cluster: give a variable with one, the"
                " name of a shared broker, or host:port"
            )
        else:
            before = len(EmbeddedBroker.shared_brokers())
            self._used = EmbeddedBroker.shared(name)
            if len(EmbeddedBroker.shared_brokers()) > before:
                sys.stdout.write(f"no broker {name!r} was shared; a new one has been started\n")
        return self._used

    def _cluster(self) -> Any:
        """The cluster in use; else the only one that the notebook has started or named."""
        if self._used is not None:
            return self._used
        found = {
            id(value): value
            for name, value in self._shell.user_ns.items()
            if isinstance(value, _CLUSTERS) and not name.startswith("_")
        }
        found.update((id(broker), broker) for broker in EmbeddedBroker.shared_brokers())
        running = [one for one in found.values() if getattr(one, "is_running", True)]
        if len(running) == 1:
            return running[0]
        if not running:
            text = (
                'no broker runs in this notebook: start one with EmbeddedBroker.shared("demo"), or'
            )
        else:
            text = f"this notebook has {len(running)} clusters ({', '.join(map(repr, running))}):"
        raise errors.InvalidArgument(
            f"{text} say which one with %rmq use NAME, a variable, a shared broker or host:port"
        )

    def _query(self, name: str) -> Any:
        found = self._shell.user_ns.get(name)
        if hasattr(found, "lastProgress"):
            return found
        spark = self._shell.user_ns.get("spark")
        active = spark.streams.active if hasattr(spark, "streams") else []
        for query in active:
            if name in (query.name, str(query.id)):
                return query
        known = ", ".join(str(query.name or query.id) for query in active) or "none"
        raise errors.InvalidArgument(
            f"{name!r:.80} is neither a variable with a query nor the name of one; active: {known}"
        )

    def _run(self, words: Sequence[str], cell: str | None) -> None:
        """Run a command of `rmq` and show what it prints."""
        environment = dict(os.environ)
        if not {"-n", "--namesrv", "--profile"} & set(words):
            try:
                environment[_NAME_SERVERS] = self._cluster().name_server
                environment.pop(_PROFILE, None)
            except errors.RmqError:
                if words[0] not in _LOCAL and not _ASK_HELP & set(words):
                    raise
        with subprocess.Popen(
            [sys.executable, "-m", "broker_core", *words],
            stdin=subprocess.DEVNULL if cell is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                if process.stdin is not None:
                    process.stdin.write(cell or "")
                    process.stdin.close()
                assert process.stdout is not None
                for line in process.stdout:
                    sys.stdout.write(line)
            except BrokenPipeError:
                # It ended before it had read the cell; its output has the reason.
                sys.stdout.write(process.stdout.read() if process.stdout else "")
            except KeyboardInterrupt:
                process.terminate()
        if process.returncode > 0:
            raise errors.InvalidArgument(f"{words[0]} ended with exit code {process.returncode}")


def _check_known(word: str, cell: str | None) -> None:
    """Raises `InvalidArgument` for a command of `%rmq` that is misspelled or was given a cell."""
    if cell is not None and word in _LINES:
        raise errors.InvalidArgument(f"{word} takes no cell: write it with one %")
    near = get_close_matches(word.lower(), _LINES, 1, 0.7)
    if near:
        raise errors.InvalidArgument(f"unknown command {word!r:.60}; did you mean {near[0]}?")


def load(shell: Any) -> None:
    """Register `%rmq` and `%%rmq`."""
    shell.register_magic_function(RmqMagic(shell).__call__, "line_cell", "rmq")
