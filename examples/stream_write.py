"""Start a stream from topic to topic twice, exactly once, on a broker of its own.

The second start repeats the last batch, as after a crash; nothing is written twice.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

from pyspark_rmq import EmbeddedBroker, spark_conf

try:
    from pyspark.sql import SparkSession
except ImportError:
    print("this example needs Spark: pip install pyspark-rmq[spark]")
    sys.exit(0)

# Warnings of Spark's own workers are not about this example.
os.environ.pop("PYTHONWARNINGS", None)
os.environ["PYSPARK_PYTHON"] = sys.executable
warnings.simplefilter("ignore")


def main() -> None:
    """Write, forget that it was written, write again, count."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config(map=spark_conf())
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    topics = {"orders": 2, "totals": 4}
    with EmbeddedBroker(topics=topics) as broker, tempfile.TemporaryDirectory() as work:
        broker.produce("orders", [f"{number},{number * 3}" for number in range(1_000)])
        checkpoint = Path(work) / "checkpoint"

        def run() -> None:
            orders = (
                spark.readStream.format("rmq")
                .options(**broker.options)
                .option("startingOffsets", "earliest")
                .load("orders")
                .selectExpr("split(cast(value as string), ',') as parts")
            )
            query = (
                orders.selectExpr("parts[1] as value", "parts[0] as key", "parts[0] as shardingKey")
                .writeStream.format("rmq")
                .options(**broker.options)
                .option("topic", "totals")
                .option("deliveryGuarantee", "exactly_once")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        run()
        print(f"first start: {len(broker.consume('totals'))} messages")
        for path in (checkpoint / "commits").iterdir():
            # As if the driver died after the commit of the sink and before its own.
            path.unlink()
        run()
        found = broker.consume("totals")
        keys = {message.keys for message in found}
        print(f"second start, same batch again: {len(found)} messages, {len(keys)} keys")
    spark.stop()


if __name__ == "__main__":
    main()
