"""`rmq broker`: runs one broker, configured by Apache's `broker.conf`, until it is told to stop."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from broker_core.broker.broker import Broker
from broker_core.broker.settings.broker_config import BrokerConfig, read_properties
from broker_core.broker.settings.unknown_properties import refuse_unknown, unknown_warnings
from broker_core.cli.command_parser import (
    NAME_SERVER_VARIABLE,
    add_process_options,
    address_list,
    key_and_value,
)
from broker_core.cli.exit_codes import CommandFailed
from broker_core.cli.servers.process_life import life_options, run_service
from broker_core.embedded.directory_removal import remove_node
from broker_core.errors import (
    CorruptStore,
    DiskFailed,
    DiskFull,
    InvalidConfig,
    StoreLocked,
    StoreUnusable,
)

_log = logging.getLogger(__name__)

EXAMPLES: Final = """\
  rmq broker -n 127.0.0.1:9876 -p storePathRootDir=data
  rmq broker -c broker.conf -p flushDiskType=SYNC_FLUSH
  rmq broker -c broker.conf --pid-file broker.pid 2>> broker.log"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help="properties as in Apache's broker.conf (default: no file)",
    )
    parser.add_argument(
        "-n",
        "--namesrv",
        type=address_list,
        metavar="ADDRESSES",
        help="name servers as HOST:PORT, several separated by ; (default: namesrvAddr of the "
        f"file, else the variable {NAME_SERVER_VARIABLE})",
    )
    add_properties_option(parser)
    # For EmbeddedCluster: removes its temporary directory if the owner was killed.
    parser.add_argument("--remove-when-orphaned", type=Path, help=argparse.SUPPRESS)
    add_process_options(parser)


def add_properties_option(parser: argparse.ArgumentParser) -> None:
    """`-p KEY=VALUE`, of every command that runs a broker."""
    parser.add_argument(
        "-p",
        "--property",
        type=key_and_value,
        action="append",
        default=[],
        dest="properties",
        metavar="KEY=VALUE",
        help="a property of the broker, under its name in broker.conf; may be repeated",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until the end is asked for."""
    config, unknown = _configured(options)
    life = life_options(options)
    warnings = unknown_warnings(unknown)
    if not config.name_servers:
        warnings.append(
            f"no name server is given (-n, namesrvAddr or {NAME_SERVER_VARIABLE}), so clients "
            "cannot find this broker"
        )
    orphaned = options.remove_when_orphaned
    return run_service(
        _BrokerService(config, warnings),
        life,
        when_orphaned=None if orphaned is None else lambda: remove_node(orphaned),
    )


def _configured(options: argparse.Namespace) -> tuple[BrokerConfig, tuple[str, ...]]:
    of_file = read_properties(options.config) if options.config else {}
    of_options = dict(options.properties)
    refuse_unknown(of_options, "option -p")
    if options.namesrv:
        of_options["namesrvAddr"] = ";".join(options.namesrv)
    of_environment = {}
    if os.environ.get(NAME_SERVER_VARIABLE):
        of_environment["namesrvAddr"] = os.environ[NAME_SERVER_VARIABLE].replace(",", ";")
    sources = {
        f"variable {NAME_SERVER_VARIABLE}": of_environment,
        options.config: of_file,
        "option -p": of_options,
    }
    return merged_config(sources)


def merged_config(
    sources: Mapping[str, Mapping[str, str]],
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """The config of all `sources`, later ones override earlier ones, and the unknown keys.

    A bad value is reported with the source that it came from.
    """
    properties = {key: text for source in sources.values() for key, text in source.items()}
    try:
        return BrokerConfig.from_properties(properties, "")
    except InvalidConfig as error:
        where = [name for name, source in sources.items() if error.key in source]
        source = error.source or (where[-1] if where else "")
        raise error.renamed(error.key, source) from None


@contextlib.contextmanager
def store_errors(root: str) -> Iterator[None]:
    """Errors of a store with its directory, once."""
    try:
        yield
    except (StoreLocked, StoreUnusable, CorruptStore, DiskFull, DiskFailed) as error:
        raise CommandFailed(f"store {root}: {str(error).removeprefix(f'{root}: ')}") from None


class _BrokerService:
    """One broker."""

    def __init__(self, config: BrokerConfig, warnings: Iterable[str]) -> None:
        self._broker = Broker(config)
        self._name = config.broker_name
        self._root = config.store_root
        self._warnings = list(warnings)

    async def start(self) -> str:
        """Open the store and listen."""
        for text in self._warnings:
            _log.warning("%s", text)
        with store_errors(self._root):
            await self._broker.start()
        return f"rmq broker {self._name} ready on {self._broker.address}"

    async def stop(self) -> None:
        """Save everything and close."""
        await self._broker.stop()
