"""`rmq cluster`: name server, masters and slaves on this machine, each in a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import logging
from typing import Final

from broker_core.cli.command_parser import add_process_options, count
from broker_core.cli.command_parser import port as port_number
from broker_core.cli.servers.broker import add_properties_option
from broker_core.cli.servers.process_life import life_options, run_service
from broker_core.embedded.embedded_cluster import EmbeddedCluster

_log = logging.getLogger(__name__)

EXAMPLES: Final = """\
  rmq cluster                          one master
  rmq cluster --masters 2              while one is down, sends go to the other
  rmq cluster --masters 2 --slaves 1   and its slave serves readers
  rmq cluster --masters 2 --slaves 1 --replication sync --dir data
                                       no loss if a disk is lost"""

_WATCH_S: Final = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.add_argument(
        "--masters", type=count, default=1, metavar="COUNT", help="masters (default: 1)"
    )
    parser.add_argument(
        "--slaves",
        type=_count_from_0,
        default=0,
        metavar="COUNT",
        help="slaves of each master (default: 0)",
    )
    parser.add_argument(
        "--replication",
        choices=("async", "sync"),
        default="async",
        help="whether a send waits until a slave has the message (default: async)",
    )
    parser.add_argument(
        "--flush",
        choices=("async", "sync"),
        default="async",
        help="whether a send waits for the disk (default: async)",
    )
    parser.add_argument(
        "--port",
        type=port_number,
        default=9876,
        help="port of the name server, 0 = any free one (default: 9876)",
    )
    parser.add_argument(
        "--dir",
        metavar="DIR",
        help="where the stores are kept (default: a temporary directory, removed at the end)",
    )
    add_properties_option(parser)
    add_process_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until the end is asked for."""
    cluster = EmbeddedCluster(
        masters=options.masters,
        slaves_per_master=options.slaves,
        replication=options.replication,
        flush=options.flush,
        directory=options.dir,
        properties=dict(options.properties),
        name_server_port=options.port,
    )
    life = life_options(options)
    return run_service(_ClusterService(cluster, is_kept=options.dir is not None), life)


def _count_from_0(text: str) -> int:
    return 0 if text == "0" else count(text)


class _ClusterService:
    """All processes."""

    def __init__(self, cluster: EmbeddedCluster, is_kept: bool) -> None:
        self._cluster = cluster
        self._is_kept = is_kept
        self._watch: asyncio.TimerHandle | None = None
        self._gone: set[str] = set()

    async def start(self) -> str:
        """Start them; slow, so not on the event loop."""
        if not self._is_kept:
            _log.warning("messages are in a temporary directory until this ends; --dir keeps them")
        await asyncio.to_thread(self._cluster.start)
        self._look()
        members = ", ".join(f"{node.name} on {node.address}" for node in self._cluster.nodes)
        return f"rmq cluster ready on {self._cluster.name_server}: {members}"

    async def stop(self) -> None:
        """End them cleanly."""
        if self._watch is not None:
            self._watch.cancel()
        await asyncio.to_thread(self._cluster.stop)

    def _look(self) -> None:
        """Log once when a process has ended; the cluster keeps running."""
        for node in self._cluster.nodes:
            if not node.is_running and node.name not in self._gone:
                self._gone.add(node.name)
                _log.warning("%s has ended; its log is %s", node.name, node.log_path)
        self._watch = asyncio.get_running_loop().call_later(_WATCH_S, self._look)
