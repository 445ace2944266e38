"""The main job: orders in one topic become invoices in another, exactly once, despite kills.

    python examples/pipeline_demo.py [--orders 60000]

Starts a broker of its own, fills a topic, and runs a Spark streaming query from that topic to
another one. On the way the query's driver is killed, then the broker; both are started again. At
the end the two topics are compared. Needs Java 17 for Spark.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from broker_core.errors import RmqError
from pyspark_rmq import EmbeddedBroker, spark_conf

ORDERS, INVOICES = "orders", "invoices"
BATCH_ROWS = 5_000
LIMIT_S = 300


def run_query(name_server: str, checkpoint: str) -> None:
    """The Spark job, in a process of its own: orders become invoices until it is stopped."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("orders-to-invoices")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(map=spark_conf())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    orders = (
        spark.readStream.format("rmq")
        .option("rmq.namesrv.addr", name_server)
        .option("subscribe", ORDERS)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS)
        .load()
    )
    invoices = orders.selectExpr(
        "concat('invoice for ', cast(value AS STRING)) AS value", "cast(value AS STRING) AS key"
    )
    query = (
        invoices.writeStream.format("rmq")
        .option("rmq.namesrv.addr", name_server)
        .option("topic", INVOICES)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


def start_query(broker: EmbeddedBroker, checkpoint: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, __file__, "--query", broker.name_server, str(checkpoint)]
    # A group of its own: a killed driver must not leave its workers behind.
    return subprocess.Popen(command, env=environment, start_new_session=True)


def kill_query(query: subprocess.Popen[bytes]) -> None:
    os.killpg(query.pid, signal.SIGKILL)
    query.wait()


def invoice_count(broker: EmbeddedBroker) -> int:
    from broker_core import SyncPullConsumer

    try:
        with SyncPullConsumer(broker.name_server) as consumer:
            return sum(map(consumer.max_offset, consumer.queues(INVOICES)))
    except RmqError:
        # Right after a kill the topic may have no route for a moment.
        return 0


def wait_for(broker: EmbeddedBroker, query: subprocess.Popen[bytes], count: int) -> int:
    """Wait until there are `count` invoices."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if query.poll() is not None:
            raise SystemExit(f"the query ended by itself with code {query.returncode}")
        found = invoice_count(broker)
        if found >= count:
            return found
        time.sleep(0.2)
    raise SystemExit(f"{invoice_count(broker)} of {count} invoices after {LIMIT_S} s")


def compare(broker: EmbeddedBroker, orders: int) -> int:
    """Print what went in and what came out; 0 when they agree."""
    seen = Counter(message.body for message in broker.consume(INVOICES))
    wanted = {b"invoice for order-%d" % number for number in range(orders)}
    lost = len(wanted - seen.keys())
    duplicated = sum(count - 1 for count in seen.values())
    foreign = len(seen.keys() - wanted)
    print(
        f"in: {orders:,} orders   out: {sum(seen.values()):,} invoices   "
        f"lost {lost}   duplicated {duplicated}   foreign {foreign}   "
        "after 2 kills (driver, broker)"
    )
    return 0 if lost == duplicated == foreign == 0 else 1


def demo(orders: int) -> int:
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="rmq-demo-") as root,
        EmbeddedBroker(topics={ORDERS: 4, INVOICES: 4}) as broker,
    ):
        print(f"broker ready at {broker.name_server} after {time.perf_counter() - started:.2f} s")
        broker.produce(ORDERS, (f"order-{number}" for number in range(orders)))
        print(f"{orders:,} orders sent")
        checkpoint = Path(root, "checkpoint")
        query = start_query(broker, checkpoint)
        try:
            done = wait_for(broker, query, orders // 4)
            kill_query(query)
            print(f"driver killed (SIGKILL) after {done:,} invoices; starting it again")
            query = start_query(broker, checkpoint)
            done = wait_for(broker, query, orders // 2)
            broker.kill()
            print(f"broker killed (SIGKILL) after {done:,} invoices; starting it again")
            broker.restart()
            if query.poll() is not None:
                query = start_query(broker, checkpoint)
            query = finish(broker, query, checkpoint, orders)
        finally:
            if query.poll() is None:
                kill_query(query)
        result = compare(broker, orders)
    print(f"took {time.perf_counter() - started:.0f} s")
    return result


def finish(
    broker: EmbeddedBroker, query: subprocess.Popen[bytes], checkpoint: Path, orders: int
) -> subprocess.Popen[bytes]:
    """Wait for all invoices; a query that gave up while the broker was away is started again."""
    deadline = time.monotonic() + LIMIT_S
    while invoice_count(broker) < orders:
        if time.monotonic() > deadline:
            raise SystemExit(f"{invoice_count(broker)} of {orders} invoices after {LIMIT_S} s")
        if query.poll() is not None:
            print("the query gave up while the broker was away; starting it again")
            query = start_query(broker, checkpoint)
        time.sleep(0.2)
    return query


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--orders", type=int, default=60_000)
    parser.add_argument("--query", nargs=2, metavar=("NAME_SERVER", "CHECKPOINT"))
    arguments = parser.parse_args()
    if arguments.query:
        run_query(*arguments.query)
        return 0
    return demo(arguments.orders)


if __name__ == "__main__":
    sys.exit(main())
