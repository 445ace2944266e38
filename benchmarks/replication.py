"""How fast messages reach a slave, and what it costs to wait for the slave.

    python benchmarks/replication.py [--quick] [--only NAME ...] [--directory DIR]

    async   throughput of asynchronous replication against the master's own append rate
    sync    latency that waiting for a synced copy adds, against a round trip with a sync
    apache  synchronous double write of ours beside that of Apache 5.5.0, loaded by Java producers

One line per goal: `ratio NAME VALUE goal >=X`. Master, slave and load share the machine. Nothing
here passes or fails, because machines and the load beside the run differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import parts
from benchmarks.replication_parts import apache, latency, log_copy
from broker_core import codec_backend

PARTS: dict[str, Callable[[Path, bool], None]] = {
    "async": log_copy.run_async,
    "sync": latency.run_sync,
    "apache": apache.run,
}


def main() -> int:
    """Run the chosen parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), help="run these parts only")
    parser.add_argument("--directory", type=Path, help="where to put the stores (default: temp)")
    arguments = parser.parse_args()
    print(f"info codec {codec_backend()}, python {sys.version.split()[0]}")
    return parts.run_in_directories(PARTS, arguments.only, arguments.directory, arguments.quick)


if __name__ == "__main__":
    sys.exit(main())
