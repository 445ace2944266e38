"""`rmq standalone`: a name server and a broker in one process, for a first try and for tests."""

from __future__ import annotations

import argparse
import logging
import re
from pathlib import Path
from typing import Final

from broker_core.broker.settings.unknown_properties import refuse_unknown, unknown_warnings
from broker_core.cli.command_parser import add_process_options, count, topic_name
from broker_core.cli.command_parser import port as port_number
from broker_core.cli.servers.broker import (
    add_properties_option,
    merged_config,
    store_errors,
)
from broker_core.cli.servers.process_life import (
    LifeOptions,
    OwnerControl,
    life_options,
    run_service,
)
from broker_core.embedded.directory_removal import remove_tree
from broker_core.embedded.standalone_server import (
    STANDALONE_PROPERTIES,
    StandaloneServer,
    StandaloneSettings,
)
from broker_core.fault_injection.control import FaultControl

_log = logging.getLogger(__name__)

EXAMPLES: Final = """\
  rmq standalone                            name server on 127.0.0.1:9876
  rmq standalone --store data --topic orders:4
  rmq standalone --port 0 --broker-port 0   any free ports, which are printed"""

_TOPIC = re.compile(r"([^:]+)(?::(.*))?", re.DOTALL)
_QUEUES_DEFAULT: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=port_number,
        default=9876,
        help="port of the name server, 0 = any free one (default: 9876)",
    )
    parser.add_argument(
        "--broker-port",
        type=port_number,
        default=10911,
        metavar="PORT",
        help="port of the broker, 0 = any free one (default: 10911)",
    )
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="where messages are kept (default: a temporary directory, removed at the end)",
    )
    parser.add_argument(
        "-t",
        "--topic",
        type=_topic,
        action="append",
        default=[],
        dest="topics",
        metavar="NAME[:QUEUES]",
        help=f"create this topic at the start, with {_QUEUES_DEFAULT} queues by default; may be"
        " repeated. Other topics are created by the first message that is sent to them",
    )
    add_properties_option(parser)
    # For EmbeddedBroker: removes its temporary directory if the owner was killed.
    parser.add_argument("--remove-when-orphaned", type=Path, help=argparse.SUPPRESS)
    # For EmbeddedBroker: its owner may cause faults and move the clock, over standard input.
    parser.add_argument("--test-control", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--test-clock", type=float, help=argparse.SUPPRESS)
    # For the option rmq.embedded: ends with the JVM of Spark's driver.
    parser.add_argument("--exit-with-process", type=_process, help=argparse.SUPPRESS)
    add_process_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    life = life_options(options)
    if options.store is not None:
        return _run_on(options.store, options, life)
    import tempfile

    with tempfile.TemporaryDirectory(prefix="rmq-") as directory:
        return _run_on(directory, options, life)


def _run_on(store: str, options: argparse.Namespace, life: LifeOptions) -> int:
    own = {
        **STANDALONE_PROPERTIES,
        "listenPort": str(options.broker_port),
        "storePathRootDir": store,
    }
    refuse_unknown(dict(options.properties), "option -p")
    config, unknown = merged_config({"": own, "option -p": dict(options.properties)})
    warnings = unknown_warnings(unknown)
    if options.store is None:
        warnings.append(f"messages are in {store} until this ends; --store DIR keeps them")
    settings = StandaloneSettings(config, options.port, dict(options.topics))
    orphaned = options.remove_when_orphaned
    faults = control = None
    if options.test_control:
        faults = FaultControl(config, clock_ahead_s=options.test_clock)
        time = None if faults.clock is None else faults.clock.monotonic
        control = OwnerControl(faults.answer, time)
        warnings.append("the process that has started this broker can cause faults: for tests only")
    return run_service(
        _StandaloneService(settings, warnings, faults),
        life,
        when_orphaned=None if orphaned is None else lambda: remove_tree(orphaned),
        control=control,
    )


def _topic(text: str) -> tuple[str, int]:
    found = _TOPIC.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r:.80} is not NAME or NAME:QUEUES")
    return topic_name(found[1]), _QUEUES_DEFAULT if found[2] is None else count(found[2])


def _process(text: str) -> tuple[int, str]:
    number, _, birth = text.partition(":")
    return count(number), birth


class _StandaloneService:
    """Both servers."""

    def __init__(
        self, settings: StandaloneSettings, warnings: list[str], control: FaultControl | None
    ) -> None:
        self._server = StandaloneServer(settings, control)
        self._root = settings.config.store_root
        self._warnings = warnings

    async def start(self) -> str:
        """Serve, the broker registered and the topics made."""
        for text in self._warnings:
            _log.warning("%s", text)
        server = self._server
        with store_errors(self._root):
            await server.start()
        return f"rmq standalone ready on {server.name_server}, broker on {server.broker_address}"

    async def stop(self) -> None:
        """Save everything and close."""
        await self._server.stop()
