"""`python -m pyspark_rmq.prove --kills N`: exit 0 if every row came out exactly once."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from pathlib import Path

from pyspark_rmq.prove.comparison import Comparison
from pyspark_rmq.prove.harness import Harness, Proof
from pyspark_rmq.prove.kill_plan import kill_plan, parse_trap
from pyspark_rmq.prove.killing_sink import PLANTS
from pyspark_rmq.prove.traps import REPLICATED_VICTIMS, VICTIMS, Trap


def main(arguments: list[str] | None = None) -> int:
    """Run, report, and say by the exit code whether it held."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_rmq.prove",
        description="Kill driver, workers, brokers and query of a stream from a topic to a topic, "
        "then compare what came out with what went in.",
    )
    parser.add_argument("--kills", type=int, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, help="repeats the kills of an earlier run")
    parser.add_argument(
        "--at", action="append", type=parse_trap, metavar="VICTIM@POINT",
        help="kill there instead, in this order; may be given several times",
    )  # fmt: skip
    parser.add_argument("--plant", choices=PLANTS, default="", help="a bug that must be found")
    parser.add_argument(
        "--without-spark", action="store_true",
        help="the same kills around the steps of Spark's micro-batches, without a JVM: fast",
    )  # fmt: skip
    parser.add_argument(
        "--replicated", action="store_true",
        help="all kills on a SYNC_MASTER and its slave, which dies too or takes the master's "
        "place; without this a quarter of the kills are kills of such a slave and promotions",
    )  # fmt: skip
    parser.add_argument("--keep", type=Path, help="directory for logs and stores; must be empty")
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.randrange(1 << 31)
    alone, replicated = _planned(given, seed)
    _say(f"seed {seed}, {len(alone) + len(replicated)} kills, {len(replicated)} with a slave")
    proofs = []
    with tempfile.TemporaryDirectory(prefix="rmq-prove-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep.absolute() if given.keep else Path(temporary)
        for name, traps in (("alone", alone), ("replicated", replicated)):
            if traps:
                proofs.append(_proven(folder / name, traps, given, name == "replicated"))
    total = _sum(proofs)
    _say(_report(total))
    return 0 if total.comparison.is_exact else 1


def _planned(given: argparse.Namespace, seed: int) -> tuple[list[Trap], list[Trap]]:
    """Kills with a broker that is alone, and with a master and its slave."""
    if given.at:
        needs_slave = [given.replicated or trap.victim in REPLICATED_VICTIMS for trap in given.at]
        alone = [trap for trap, needs in zip(given.at, needs_slave, strict=True) if not needs]
        return alone, [trap for trap, needs in zip(given.at, needs_slave, strict=True) if needs]
    if given.replicated:
        victims = (*VICTIMS, *REPLICATED_VICTIMS)
        return [], list(itertools.islice(kill_plan(seed, victims), given.kills))
    share = 0 if given.plant else given.kills // 4
    return (
        list(itertools.islice(kill_plan(seed), given.kills - share)),
        list(itertools.islice(kill_plan(seed, REPLICATED_VICTIMS), share)),
    )


def _proven(folder: Path, traps: list[Trap], given: argparse.Namespace, replicated: bool) -> Proof:
    folder.mkdir(parents=True, exist_ok=True)
    spark = not given.without_spark
    with Harness(folder, _say, plant=given.plant, spark=spark, replicated=replicated) as harness:
        return harness.run(traps)


def _sum(proofs: list[Proof]) -> Proof:
    compared = [sum(found) for found in zip(*(p.comparison for p in proofs), strict=True)]
    return Proof(
        sum(proof.kills for proof in proofs),
        sum(proof.batches for proof in proofs),
        sum(proof.driver_starts for proof in proofs),
        sum(proof.broker_starts for proof in proofs),
        sum(proof.promotions for proof in proofs),
        Comparison(*compared),
    )


def _report(proof: Proof) -> str:
    found = proof.comparison
    return (
        f"kills {proof.kills}, driver starts {proof.driver_starts}, broker starts"
        f" {proof.broker_starts}, promotions {proof.promotions}, batches {proof.batches}, rows in"
        f" {found.rows_in}, rows out {found.rows_out}, lost {found.lost}, duplicated"
        f" {found.duplicated}, strange {found.strange}"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
