"""What several masters of one cluster cost: CPU time per message with 1, 2 and 4 of them.

One event loop is one core, so a machine with more cores needs several brokers. All masters are
pinned to the first core and the load to the last, so that the figure does not depend on how many
cores the machine has: a message that costs as much on one of four masters as on a single one gives
a machine with four free cores four times the rate. That step is made on paper, and the rows say so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.broker_parts.scale import WINDOW, Wire, send_frame
from benchmarks.broker_parts.servers import cost_of
from benchmarks.measuring.measure import run_loop, touch_memory
from benchmarks.measuring.results import info, ratio, row
from benchmarks.measuring.rounds import Figure, figure, in_turns, ratio_of
from broker_core import EmbeddedCluster

COUNTS = (1, 2, 4)
TOPIC = "Masters"
SIZE = 1024
ROUNDS = 3
_TABLE = "broker, several masters"


def pin(pid: int, core: int) -> None:
    """All threads of a process to one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        # Threads end while they are listed.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), {core})


@contextlib.contextmanager
def _pinned_to(core: int) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _sends(addresses: Sequence[str], count: int) -> None:
    """`count` messages over one connection to each address, `WINDOW` in flight on each."""
    frames = [send_frame(TOPIC, bytes(SIZE))] * WINDOW

    async def feed(address: str) -> None:
        wire = await Wire.open(address)
        for _ in range(count // len(addresses) // WINDOW):
            await wire.answers(frames)
        await wire.close()

    await asyncio.gather(*map(feed, addresses))


class Masters:
    """A running cluster of `count` masters."""

    def __init__(self, cluster: EmbeddedCluster, count: int, core: int) -> None:
        names = [f"broker-{chr(ord('a') + number)}:0" for number in range(count)]
        self._nodes = [cluster.node(name) for name in names]
        self._core = core

    def cpu_us(self, messages: int) -> float:
        """CPU time of all masters per message."""
        pids = [node.process_id for node in self._nodes]
        for pid in pids:
            pin(pid, self._core)
        before = sum(cost_of(pid).cpu_s for pid in pids)
        run_loop(_sends([node.address for node in self._nodes], messages))
        return (sum(cost_of(pid).cpu_s for pid in pids) - before) / messages * 1e6


def run(root: Path, quick: bool) -> None:
    """1, 2 and 4 masters, each cluster from one call, as `rmq cluster --masters N` starts it."""
    cores = sorted(os.sched_getaffinity(0))
    messages = (100_000 if quick else 500_000) // (4 * WINDOW) * 4 * WINDOW
    taken: dict[str, list[float]] = {str(count): [] for count in COUNTS}
    with contextlib.ExitStack() as stack:
        clusters = {}
        for count in COUNTS:
            cluster = EmbeddedCluster(
                masters=count, directory=root / f"masters-{count}", topics={TOPIC: 1}
            )
            stack.enter_context(cluster)
            clusters[str(count)] = Masters(cluster, count, cores[0])
        stack.enter_context(_pinned_to(cores[-1]))

        def take(name: str, number: int) -> None:
            touch_memory(root, 2 * SIZE * messages)
            cost = clusters[name].cpu_us(messages)
            if number >= 0:
                taken[name].append(cost)

        in_turns(list(clusters), take, ROUNDS)
    _tell({int(name): figure(values) for name, values in taken.items()})


def _tell(costs: dict[int, Figure]) -> None:
    settings = f"ASYNC_FLUSH, {SIZE} B, one connection with {WINDOW} in flight to each master"
    for count, cost in costs.items():
        row(_TABLE, "CPU time of all masters", settings, "us/msg", cost, x=count, x_name="masters")
        info(
            f"on paper: at most {count * 1e6 / cost.median:,.0f} msg/s with {count} free cores for "
            "the masters, clients not included"
        )
    for count in COUNTS[1:]:
        value = ratio_of(costs[count], costs[1])
        ratio(f"cpu_per_message_{count}_masters_over_one", value, "<=1.2", "one master")
