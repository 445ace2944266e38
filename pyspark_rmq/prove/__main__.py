"""`python -m pyspark_rmq.prove --kills N`: compares the output with the acknowledged rows.

Exit 0: every acknowledged row was written exactly once. 1: some were not, see the report. 2: wrong
arguments. 3: the run could not be finished and proves nothing.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from pyspark_rmq.prove.comparison import Comparison
from pyspark_rmq.prove.harness import PULL, Harness, Proof
from pyspark_rmq.prove.kill_plan import kill_plan, parse_trap
from pyspark_rmq.prove.killing_sink import PLANTS, SHOWN_BY
from pyspark_rmq.prove.traps import REPLICATED_VICTIMS, VICTIMS, Trap

_log = logging.getLogger(__name__)

EXACT: Final = 0
FOUND: Final = 1
UNFINISHED: Final = 3


def main(arguments: list[str] | None = None) -> int:
    """Run, report and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_rmq.prove",
        description="Kill driver, workers, brokers and query of a stream from a topic to a topic, "
        "then compare the output with the input.",
    )
    parser.add_argument("--kills", type=_count, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, help="repeats the kills of an earlier run")
    parser.add_argument(
        "--at",
        action="append",
        type=parse_trap,
        metavar="VICTIM@POINT",
        help="kill there instead, in this order; may be given several times",
    )
    parser.add_argument("--plant", choices=PLANTS, default="", help="a bug that must be found")
    parser.add_argument(
        "--without-spark",
        action="store_true",
        help="the same kills around the steps of Spark's micro-batches, without a JVM: fast",
    )
    parser.add_argument(
        "--replicated",
        action="store_true",
        help="all kills on a SYNC_MASTER and its slave, which is also killed or promoted; without "
        "this a quarter of the kills are of that kind",
    )
    parser.add_argument(
        "--reader",
        default="",
        metavar="COMMAND",
        help="another reader of the output, run as COMMAND NAME_SERVER TOPIC; it prints the "
        "body of every message of the topic, one per line",
    )
    parser.add_argument("--keep", type=Path, help="directory for logs and stores; must be empty")
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.randrange(1 << 31)
    alone, replicated = _planned(given, seed)
    _say(f"seed {seed}, {len(alone) + len(replicated)} kills, {len(replicated)} with a slave")
    try:
        proofs = list(_run(given, {"alone": alone, "replicated": replicated}))
    except Exception:  # noqa: BLE001 - of any kind, and no finding about the rows
        _log.exception("the run could not be finished")
        _say("not finished: the run proves nothing about the rows; the error is above")
        return UNFINISHED
    for line in _reports(proofs):
        _say(line)
    return EXACT if all(proof.is_exact for proof in proofs) else FOUND


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r:.40} is no number of kills; give at least 1")
    return int(text)


def _run(given: argparse.Namespace, planned: dict[str, list[Trap]]) -> Iterator[Proof]:
    with tempfile.TemporaryDirectory(prefix="rmq-prove-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep.absolute() if given.keep else Path(temporary)
        for name, traps in planned.items():
            if traps:
                yield _proven(folder / name, traps, given, name == "replicated")


def _planned(given: argparse.Namespace, seed: int) -> tuple[list[Trap], list[Trap]]:
    """Kills with a broker that is alone, and with a master and its slave."""
    if given.at:
        needs_slave = [given.replicated or trap.victim in REPLICATED_VICTIMS for trap in given.at]
        alone = [trap for trap, needs in zip(given.at, needs_slave, strict=True) if not needs]
        return alone, [trap for trap, needs in zip(given.at, needs_slave, strict=True) if needs]
    if given.plant:
        # The kill that shows the bug comes first.
        victims = (*VICTIMS, *REPLICATED_VICTIMS) if given.replicated else VICTIMS
        others = itertools.islice(kill_plan(seed, victims), given.kills - 1)
        traps = [SHOWN_BY[given.plant], *others]
        return ([], traps) if given.replicated else (traps, [])
    if given.replicated:
        victims = (*VICTIMS, *REPLICATED_VICTIMS)
        return [], list(itertools.islice(kill_plan(seed, victims), given.kills))
    share = given.kills // 4
    return (
        list(itertools.islice(kill_plan(seed), given.kills - share)),
        list(itertools.islice(kill_plan(seed, REPLICATED_VICTIMS), share)),
    )


def _proven(folder: Path, traps: list[Trap], given: argparse.Namespace, replicated: bool) -> Proof:
    folder.mkdir(parents=True, exist_ok=True)
    with Harness(
        folder,
        _say,
        plant=given.plant,
        spark=not given.without_spark,
        replicated=replicated,
        reader=given.reader,
    ) as harness:
        return harness.run(traps)


def _reports(proofs: list[Proof]) -> Iterator[str]:
    """A line for each further reader, one about the source topic, and the totals last."""
    for reader in dict.fromkeys(name for proof in proofs for name in proof.comparisons):
        if reader != PULL:
            total = _sum(p.comparisons[reader] for p in proofs if reader in p.comparisons)
            yield f"read by {reader}: {_figures(total)}"
    missing = sum(proof.missing for proof in proofs)
    if missing:
        yield f"{missing} acknowledged rows are not in the source topic, or more than once"
    if not all(proof.acknowledged for proof in proofs):
        yield "no row was acknowledged, so nothing was proved"
    yield (
        f"kills {sum(proof.kills for proof in proofs)}, driver starts"
        f" {sum(proof.driver_starts for proof in proofs)}, broker starts"
        f" {sum(proof.broker_starts for proof in proofs)}, promotions"
        f" {sum(proof.promotions for proof in proofs)}, batches"
        f" {sum(proof.batches for proof in proofs)}, acknowledged"
        f" {sum(proof.acknowledged for proof in proofs)},"
        f" {_figures(_sum(proof.comparison for proof in proofs))}"
    )


def _sum(comparisons: Iterable[Comparison]) -> Comparison:
    return Comparison(*map(sum, zip(*comparisons, strict=True)))


def _figures(found: Comparison) -> str:
    return (
        f"rows in {found.rows_in}, rows out {found.rows_out}, lost {found.lost}, duplicated"
        f" {found.duplicated}, strange {found.strange}"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
