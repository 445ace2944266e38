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

from benchmarks.broker_parts import clients, consume, masters, produce, scale, servers
from benchmarks.measuring import parts
from broker_core import codec_backend

PARTS: dict[str, Callable[[Path, bool], None]] = {
    "start": scale.run_start,
    "produce": produce.run_async_flush,
    "produce-sync": produce.run_sync_flush,
    "programs": produce.run_apache_programs,
    "consume": consume.run,
    "latency": consume.run_latency,
    "batches": clients.run_batches,
    "pulls": clients.run_pulls,
    "idle": scale.run_idle,
    "topics": scale.run_topics,
    "masters": masters.run,
}


def main() -> int:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="run these parts only")
    parser.add_argument("--directory", type=Path, help="where to put the stores (default: temp)")
    arguments = parser.parse_args()
    reason = servers.unavailable()
    if reason is not None:
        print(f"info nothing to compare with: {reason}")
        return 1
    print(f"info codec {codec_backend()}, python {sys.version.split()[0]}")
    return parts.run_in_directories(PARTS, arguments.only, arguments.directory, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
