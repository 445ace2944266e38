"""F08, F09, F15, F16 with real processes: nothing that a synchronous send promised is ever lost.

Members are killed, stopped and cut off while messages are sent. After each fault every message that
was answered with SEND_OK must be at the member that is left, and once all is healed both logs must
be the same, byte for byte.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.broken_link import BrokenLink, broken_link
from tests.crash.replicated_run import ReplicatedRun, replicated_run

# A stopped member is asked, too, before another one takes its place.
PATIENCE_MS = 15_000
pytestmark = pytest.mark.crash

RunAsync = Callable[..., Any]


async def _healed(run: ReplicatedRun) -> str:
    """All works again; what was found."""
    await run.until_acked(20)
    await run.stop_load()
    await run.until_same()
    size = await run.check_same_bytes()
    count = await run.check_promises(run.slave)
    await run.check_promises(run.master)
    outcomes = ", ".join(f"{name} {n}" for name, n in sorted(run.outcomes.items()))
    return f"{count} acknowledged of {run.sent} sent, 0 lost, {size >> 10} KiB alike ({outcomes})"


def test_members_are_killed(
    run_async: RunAsync, tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    rounds = 200 if long_run else 3
    rng = random.Random(8)

    async def scenario() -> str:
        async with replicated_run(tmp_path) as run:
            for number in range(rounds):
                kind = ("master", "slave", "both")[number % 3]
                await run.pause(rng.uniform(0.0, 0.5))
                victims = [run.master, run.slave] if kind == "both" else [getattr(run, kind)]
                for node in victims:
                    run.cluster.kill(node)
                if kind == "master":
                    # The master's disk might be gone as well: what the slave has must do.
                    await run.check_promises(run.slave)
                for node in rng.sample(victims, len(victims)):
                    await asyncio.to_thread(run.cluster.restart, node)
                await run.until_acked(10)
            return await _healed(run)

    found = run_async(scenario(), limit_s=300 + 60 * rounds)
    summary_lines.append(f"F08 replicated kills {rounds} rounds: {found}")


def test_members_are_stopped_for_a_while(
    run_async: RunAsync, tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    rounds, longest_s = (30, 20.0) if long_run else (2, 2.5)
    rng = random.Random(9)

    async def scenario() -> str:
        async with replicated_run(tmp_path) as run:
            for number in range(rounds):
                node = (run.slave, run.master)[number % 2]
                node.pause()
                # Once longer than a send waits, otherwise anything.
                await run.pause(longest_s if number == 0 else rng.uniform(0.1, longest_s))
                node.resume()
                await run.until_acked(10)
                await run.check_promises(run.slave)
            return await _healed(run)

    found = run_async(scenario(), limit_s=300 + 60 * rounds)
    summary_lines.append(f"F09 replicated stops {rounds} rounds: {found}")


def test_the_link_is_broken_in_every_way(
    run_async: RunAsync, tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    rounds = 60 if long_run else 5
    rng = random.Random(15)

    async def break_it(link: BrokenLink, run: ReplicatedRun, kind: str) -> None:
        if kind == "cut":
            link.cut()
            await run.pause(rng.uniform(0.2, 1.5))
        elif kind == "stall":
            link.stall()
            await run.pause(rng.uniform(0.5, 3.0))
        elif kind == "flap":
            for _ in range(6):
                link.cut()
                await run.pause(rng.uniform(0.02, 0.3))
                link.heal()
                await run.pause(rng.uniform(0.02, 0.3))
        elif kind == "trickle":
            link.trickle(rng.choice((1, 7, 100)), 0.01)
            await run.pause(1.0)
        elif kind == "reset":
            for _ in range(5):
                link.reset_after(rng.randrange(1, 30_000))
                await run.pause(0.2)
        link.heal()

    async def scenario() -> str:
        async with replicated_run(tmp_path) as run, broken_link(run.master.ha_address) as link:
            run.slave.set_properties(haMasterAddress=link.address)
            await asyncio.to_thread(run.cluster.restart, run.slave)
            await run.until_acked(10)
            assert link.carried, "the slave does not use the link"
            kinds = ("cut", "flap", "stall", "reset", "trickle")
            for number in range(rounds):
                await break_it(link, run, kinds[number % len(kinds)])
                await run.until_acked(10)
                await run.check_promises(run.slave)
            return await _healed(run)

    found = run_async(scenario(), limit_s=300 + 60 * rounds)
    summary_lines.append(f"F15 broken links     {rounds} rounds: {found}")


def test_a_master_that_was_away_does_not_undo_a_promotion(
    run_async: RunAsync, tmp_path: Path, long_run: bool, summary_lines: list[str]
) -> None:
    """R07: the master stops answering, its slave is promoted, and the master wakes up again."""
    rounds = 20 if long_run else 1

    async def until_followed(run: ReplicatedRun) -> None:
        async def is_followed() -> bool:
            found = await run.roles()
            return found == {run.master.name: "SLAVE", run.slave.name: "SYNC_MASTER"}

        await run.until(is_followed, "the old master follows the new one")

    async def scenario() -> str:
        async with replicated_run(tmp_path) as run:
            for _ in range(rounds):
                run.master.pause()
                # It is unreachable, and no peer knows that it will not come back.
                await asyncio.to_thread(run.cluster.promote, run.slave, force=True)
                run.master.resume()
                await until_followed(run)
                await run.until_acked(20)
                # The members have changed places; the next round sends the new master to sleep.
                run.master, run.slave = run.slave, run.master
                run.slave.set_properties(brokerRole="SLAVE", brokerId="1")
            return await _healed(run)

    found = run_async(scenario(), limit_s=300 + 120 * rounds)
    summary_lines.append(f"R07 promotions       {rounds} rounds: {found}")
