"""How fast the store is, as ratios against a peer or a physical limit measured in the same run.

    python benchmarks/store.py [--quick] [--only NAME ...] [--directory DIR]

One line per goal: `ratio NAME VALUE goal >=X`. Medians of five rounds (three for the long ones).
Nothing here passes or fails, because machines and the load beside the run differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measuring import parts
from benchmarks.store_parts import append, flush, growth, opening, read
from broker_core import codec_backend

PARTS: dict[str, Callable[[Path, bool], None]] = {
    "append": append.run,
    "python": append.run_pure_python,
    "java": append.run_java,
    "read": read.run,
    "flush": flush.run,
    "group": flush.run_group,
    "open": opening.run,
    "recovery": opening.run_recovery,
    "growth": growth.run,
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
