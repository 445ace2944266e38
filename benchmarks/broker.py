"""How fast the broker is, as ratios against Apache's broker measured in the same run.

    python benchmarks/broker.py [--quick] [--only NAME ...] [--directory DIR]

One line per goal: `ratio NAME VALUE goal >=X`; where a goal is a plain number, so is the value.
Medians of alternating rounds after equal warm-up; client and brokers share the machine. Needs Java
for all parts that compare. Nothing here passes or fails, because machines and the load beside the
run differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import (
    broker_clients,
    broker_consume,
    broker_masters,
    broker_produce,
    broker_scale,
    broker_servers,
    parts,
)
from broker_core import codec_backend

PARTS: dict[str, Callable[[Path, bool], None]] = {
    "start": broker_scale.run_start,
    "produce": broker_produce.run_async_flush,
    "produce-sync": broker_produce.run_sync_flush,
    "programs": broker_produce.run_apache_programs,
    "consume": broker_consume.run,
    "latency": broker_consume.run_latency,
    "batches": broker_clients.run_batches,
    "pulls": broker_clients.run_pulls,
    "idle": broker_scale.run_idle,
    "topics": broker_scale.run_topics,
    "masters": broker_masters.run,
}


def main() -> int:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="run these parts only")
    parser.add_argument("--directory", type=Path, help="where to put the stores (default: temp)")
    arguments = parser.parse_args()
    reason = broker_servers.unavailable()
    if reason is not None:
        print(f"info nothing to compare with: {reason}")
        return 1
    print(f"info codec {codec_backend()}, python {sys.version.split()[0]}")
    return parts.run_in_directories(PARTS, arguments.only, arguments.directory, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
