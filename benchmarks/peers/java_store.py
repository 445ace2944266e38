"""The real RocketMQ store's append rate on this machine, to compare our own with in one run.

Shares the driver and the jar cache with `tests/interop`. Never asserts anything.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.interop.java_store import JavaStore

ROUNDS = 5
# Keeps the disk and the first use of fresh pages out of the figure, which then shows the cost of
# the store's own code. The first rounds may still overlap with Java warming its next file.
WARM_FILES_NO_FLUSH = {"warmMapedFileEnable": True, "flushIntervalCommitLog": 1_000_000_000}


class AppendRate(NamedTuple):
    """Medians over the rounds; the bytes are message bodies, without record headers."""

    messages_per_s: float
    body_bytes_per_s: float
    dispatched_per_s: float
    """Messages, until the queues of all of them are built."""


def java_store_unavailable(version: str = "5.5.0") -> str | None:
    """Why Apache's store cannot run on this machine, or None."""
    return JavaStore(version).available()


def java_store_append(
    body_size: int,
    count: int,
    batch: int,
    *,
    version: str = "5.5.0",
    rounds: int = ROUNDS,
    directory: Path | None = None,
    config: Mapping[str, Any] | None = None,
) -> AppendRate:
    """Appends `count` messages per round, `batch` at a time, into 1 GiB files with ASYNC_FLUSH.

    A batch of 1 uses putMessage, any other putMessages with one pre-encoded body. One more round
    comes first to warm up. Needs about (rounds + 1) × count × (body_size + 110) bytes of disk under
    `directory` (default: the temporary directory), plus one file that Java prepares ahead.
    `config` overrides fields of Java's MessageStoreConfig, for example WARM_FILES_NO_FLUSH.
    """
    with tempfile.TemporaryDirectory(prefix="rmq-java-bench-", dir=directory) as root:
        rows = JavaStore(version).append_rounds(
            Path(root),
            body_size=body_size,
            message_count=count,
            batch_count=batch,
            rounds=rounds,
            warmup_count=count,
            config=config,
        )
    return AppendRate(
        statistics.median(row["message_count"] / row["append_seconds"] for row in rows),
        statistics.median(row["body_bytes"] / row["append_seconds"] for row in rows),
        statistics.median(row["message_count"] / row["dispatched_seconds"] for row in rows),
    )


def main() -> None:
    reason = java_store_unavailable()
    if reason is not None:
        sys.exit(reason)
    for body_size, count, batch in ((100, 500_000, 100), (1024, 200_000, 100), (100, 100_000, 1)):
        rate = java_store_append(body_size, count, batch)
        print(
            f"rocketmq-store 5.5.0, {body_size} B, batch {batch}: "
            f"{rate.messages_per_s:,.0f} msg/s, {rate.body_bytes_per_s / 1e6:,.0f} MB/s"
        )


if __name__ == "__main__":
    main()
