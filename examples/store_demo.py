"""Put, read, kill, recover: the promises of the store, shown on a real process and a real kill.

A child process opens a store, puts messages and reports each one that was acknowledged. In the
middle of it the child is killed with SIGKILL. The parent opens the same directory, which recovers
it, and compares what was acknowledged with what is there.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from broker_core import Message, MessageStore, StoreConfig, codec_backend
from broker_core.codec.records.arrow_columns import to_arrow
from broker_core.codec.records.column_batch import ColumnBatch
from broker_core.codec.records.column_names import QUEUE_OFFSET, TAGS, VALUE
from broker_core.codec.records.host_address import encode_host
from broker_core.storage.staging.staging_area import encode_template

ACKNOWLEDGED_BEFORE_KILL = 5_000
GROUP_ROWS = 200_000
HOST = encode_host(("127.0.0.1", 10911))


async def put_until_killed(directory: str) -> None:
    """The child: 64 producers, one line on stdout per acknowledged message."""
    store = MessageStore.open(directory, StoreConfig())
    await store.start()
    numbers = itertools.count()

    async def producer(queue_id: int) -> None:
        while True:
            number = next(numbers)
            body = b"order %d" % number
            result = await store.put(
                Message("orders", body, queue_id=queue_id, tags="new", keys=f"k{number}")
            )
            if result.ok:
                print(queue_id, result.queue_offset, number, flush=True)

    await asyncio.gather(*(producer(n % 4) for n in range(64)))


def run_and_kill(directory: str) -> dict[tuple[int, int], int]:
    """Start the child, let it work, kill it; returns what it had acknowledged."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--put-until-killed", directory], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    acknowledged = {}
    for line in child.stdout:
        if line.endswith(b"\n") and line.count(b" ") == 2:
            queue_id, offset, number = map(int, line.split())
            acknowledged[queue_id, offset] = number
        if len(acknowledged) == ACKNOWLEDGED_BEFORE_KILL:
            child.send_signal(signal.SIGKILL)
    child.wait()
    return acknowledged


def check(store: MessageStore, acknowledged: dict[tuple[int, int], int]) -> tuple[int, int]:
    """How many acknowledged messages are missing or different."""
    lost = changed = 0
    for queue_id in range(4):
        low, high = store.offsets("orders", queue_id)
        columns = store.read_columns("orders", queue_id, low, high, VALUE)
        bodies = to_arrow(columns, high - low).column("value").to_pylist()
        for (queue, offset), number in acknowledged.items():
            if queue == queue_id:
                lost += offset >= high
                changed += offset < high and bodies[offset] != b"order %d" % number
    return lost, changed


async def append_group(directory: str) -> None:
    """Append 200,000 rows over two queues, all visible at once or not at all."""
    offsets = np.arange(GROUP_ROWS + 1, dtype=np.int64) * 100
    batch = ColumnBatch(
        count=GROUP_ROWS,
        queues=((b"metrics", 0), (b"metrics", 1)),
        queue_index=np.arange(GROUP_ROWS, dtype=np.int32) % 2,
        body=(bytes(100 * GROUP_ROWS), offsets, 8),
        born_timestamp=int(time.time() * 1000),
        born_host=HOST,
        store_host=HOST,
    )
    with MessageStore.open(directory) as store:
        await store.start()
        started = time.perf_counter()
        result = store.append_group([encode_template(batch)], note=b"batch 1")
        before = sum(store.offsets("metrics", queue)[1] for queue in (0, 1))
        await store.group_acknowledged(result)
        seconds = time.perf_counter() - started
        after = sum(store.offsets("metrics", queue)[1] for queue in (0, 1))
    print(f"append group     {result.message_count} rows over 2 queues, durable after "
          f"{seconds:.2f} s; visible before: {before}, after: {after}")  # fmt: skip


def main() -> int:
    """Run the demonstration; 0 when nothing was lost."""
    print(f"codec            {codec_backend()}")
    with tempfile.TemporaryDirectory(prefix="rmq-store-demo-") as directory:
        acknowledged = run_and_kill(directory)
        print(f"child killed     SIGKILL after {len(acknowledged)} acknowledged messages")
        left_behind = (Path(directory) / "abort").exists()
        started = time.perf_counter()
        with MessageStore.open(directory) as store:
            ms = (time.perf_counter() - started) * 1000
            report = store.recovery
            print(f"recovered        in {ms:.0f} ms, log [{report.log_start}, {report.log_end}), "
                  f"'abort' was {'there' if left_behind else 'missing'}")  # fmt: skip
            lost, changed = check(store, acknowledged)
            print(f"compared         {len(acknowledged)} acknowledged, {lost} lost, "
                  f"{changed} changed")  # fmt: skip
            found = store.query("orders", f"k{acknowledged[0, 0]}")
            print(f"by key           k{acknowledged[0, 0]} -> {found[0].body.decode()!r}")
            last = store.offsets("orders", 0)[1]
            columns = store.read_columns("orders", 0, last - 3, last, VALUE | TAGS | QUEUE_OFFSET)
            print("as Arrow columns", to_arrow(columns, 3).to_pylist())
        asyncio.run(append_group(directory))
        with MessageStore.open(directory) as store:
            print(f"closed, reopened clean={store.recovery.clean}, epoch {store.epoch}")
    return 0 if acknowledged and lost == changed == 0 else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--put-until-killed"]:
        asyncio.run(put_until_killed(sys.argv[2]))
    sys.exit(main())
