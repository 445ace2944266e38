"""`python -m pyspark_rmq.prove --kills N`: exit 0 if every row came out exactly once."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from pathlib import Path

from pyspark_rmq.prove.harness import Harness, Proof
from pyspark_rmq.prove.kill_plan import kill_plan, parse_trap
from pyspark_rmq.prove.killing_sink import PLANTS


def main(arguments: list[str] | None = None) -> int:
    """Run, report, and say by the exit code whether it held."""
    parser = argparse.ArgumentParser(
        prog="python -m pyspark_rmq.prove",
        description="Kill driver, workers, broker and query of a stream from a topic to a topic, "
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
    parser.add_argument("--keep", type=Path, help="directory for logs and stores; must be empty")
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.randrange(1 << 31)
    traps = given.at or list(itertools.islice(kill_plan(seed), given.kills))
    _say(f"seed {seed}, {len(traps)} kills")
    with tempfile.TemporaryDirectory(prefix="rmq-prove-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep.absolute() if given.keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        spark = not given.without_spark
        with Harness(folder, _say, plant=given.plant, spark=spark) as harness:
            proof = harness.run(traps)
    _say(_report(proof))
    return 0 if proof.comparison.is_exact else 1


def _report(proof: Proof) -> str:
    found = proof.comparison
    return (
        f"kills {proof.kills}, driver starts {proof.driver_starts}, broker starts"
        f" {proof.broker_starts}, batches {proof.batches}, rows in {found.rows_in}, rows out"
        f" {found.rows_out}, lost {found.lost}, duplicated {found.duplicated}, strange"
        f" {found.strange}"
    )


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
