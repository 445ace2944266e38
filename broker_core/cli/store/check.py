"""`rmq store check DIR`: what opening the store would find and do, without changing anything."""

from __future__ import annotations

import argparse
import json
from typing import Final

from broker_core.cli.exit_codes import DONE, FAILED
from broker_core.store.opening.verdict import RecoveryVerdict, StoreCheck, check_directory

ACTIONS: Final = ("check",)

EXAMPLES: Final = """\
  rmq store check /var/lib/rmq/store          exit code 0: nothing is lost
  rmq store check /var/lib/rmq/store --json   the same as a JSON object"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, metavar="check", help="print the verdict")
    parser.add_argument("directory", metavar="DIR", help="the store's directory (storePathRootDir)")
    parser.add_argument(
        "-J", "--json", action="store_true", help="print the verdict as a JSON object in one line"
    )


def run(options: argparse.Namespace) -> int:
    """Print the verdict; FAILED when opening the store would cut bytes, or could not open it."""
    found = check_directory(options.directory)
    if options.json:
        print(json.dumps(found.to_json()))
    else:
        print("\n".join(_lines(found)))
    return DONE if found.is_sound else FAILED


def _lines(found: StoreCheck) -> list[str]:
    verdict = found.verdict
    if verdict is None:
        return [f"damaged:    {found.damage}", "opening:    refused, nothing is cut"]
    stop = "clean" if verdict.clean_stop else "not clean (the file `abort` exists)"
    return [
        f"store:      {verdict.store_id or 'has no state file'}, epoch {verdict.epoch}",
        f"last stop:  {stop}",
        f"valid log:  [{verdict.log_start}, {verdict.log_end}), durable up to {verdict.durable}, "
        f"verified from {verdict.checked_from}",
        f"log ends:   {verdict.end_reason or 'no bytes follow'}",
        f"cut:        {_cut(found, verdict)}",
        f"removed:    {', '.join(verdict.removed_files) or 'no file'}",
        f"rebuilt:    {_rebuilt(found, verdict)}",
    ]


def _cut(found: StoreCheck, verdict: RecoveryVerdict) -> str:
    if not found.cut_bytes:
        return "nothing"
    files = [*(name for name, _ in verdict.cut.zeroed), *verdict.cut.removed]
    return f"{found.cut_bytes} bytes from {verdict.log_end} on ({', '.join(files)})"


def _rebuilt(found: StoreCheck, verdict: RecoveryVerdict) -> str:
    if verdict.rebuilds_all:
        return "all queues and the index, from the log"
    parts = [f"queue {queue}" for queue in found.rebuilt_queues]
    if found.index_rebuilt_from is not None:
        parts.append(f"the index from log position {found.index_rebuilt_from}")
    if verdict.dispatched_from < verdict.log_end:
        parts.append(f"entries of queues and index from {verdict.dispatched_from} on")
    return ", ".join(parts) or "nothing"
