"""A job that was written for Kafka. Both connectors run this very text.

    python -m tests.spark.kafka_job ARGUMENTS.json

The arguments hold what `docs/migration.md` says to change: format, servers and column names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.spark.spark_session import new_session
from tests.spark.stream_runs import run_to_end


def main() -> None:
    given = json.loads(Path(sys.argv[1]).read_text())
    spark = new_session({"spark.jars": given["jars"]} if given["jars"] else None)
    result = job(spark, given["format"], given["options"], Path(given["home"]))
    (Path(given["home"]) / "result.json").write_text(json.dumps(result))
    spark.stop()


def job(spark: Any, source: str, servers: dict[str, str], home: Path) -> dict[str, Any]:
    """Orders in, one filtered and renamed copy of them out, both read back."""
    orders = spark.createDataFrame(
        [(f"o{n % 5}", f'{{"id": "o{n % 5}", "amount": {n}}}', str(n)) for n in range(40)],
        "id STRING, json STRING, trace STRING",
    )
    with_headers = orders.selectExpr(
        "CAST(id AS BINARY) AS key", "CAST(json AS BINARY) AS value",
        "CASE WHEN CAST(trace AS INT) % 2 = 0 THEN"
        " array(struct('trace' AS key, CAST(trace AS BINARY) AS value)) END AS headers",
    )  # fmt: skip
    writer = with_headers.write.format(source).options(**servers).mode("append")
    writer.option("topic", "orders").save()
    without_key = orders.limit(3).selectExpr("json AS value", "'orders' AS topic", "0 AS partition")
    without_key.write.format(source).options(**servers).mode("append").save()

    stream = (
        spark.readStream.format(source).options(**servers)
        .option("subscribe", "orders")
        .option("startingOffsets", '{"orders":{"0":-2,"1":-2}}')
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", "25")
        .option("failOnDataLoss", "true")
        .load()
    )  # fmt: skip
    large = (
        stream.where("key IS NOT NULL")
        .selectExpr("key", "from_json(CAST(value AS STRING), 'id STRING, amount INT') AS order",
                    "headers")
        .where("order.amount >= 20")
        .selectExpr("key", "to_json(order) AS value", "headers")
    )  # fmt: skip
    writer = (
        large.writeStream.format(source).options(**servers)
        .option("topic", "large")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
    )  # fmt: skip
    run_to_end(writer.start)

    def table(topic: str) -> Any:
        reader = spark.read.format(source).options(**servers).option("includeHeaders", "true")
        return reader.option("subscribe", topic).option("endingOffsets", "latest").load()

    plain = spark.read.format(source).options(**servers).option("subscribe", "orders").load()
    # With all columns that the source has.
    copied = table("orders").write.format(source).options(**servers).mode("append")
    copied.option("topic", "copies").save()
    columns = "CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value", "topic", "headers"
    rows = {
        topic: sorted(
            json.dumps([r.key, r.value, r.topic, _shown(r.headers)])
            for r in table(topic).selectExpr(*columns).collect()
        )
        for topic in ("orders", "large", "copies")
    }
    queues = table("orders").where("key IS NOT NULL").selectExpr("hash(key) AS k", "partition")
    spread = queues.distinct().groupBy("k").count().collect()
    first = table("orders").orderBy("partition", "offset").collect()
    return {
        "schema": plain.schema.jsonValue(),
        "schemaWithHeaders": table("orders").schema.jsonValue(),
        "streamSchema": stream.schema.jsonValue(),
        "rows": rows,
        "offsets": sorted({row.offset for row in first})[0],
        "partitions": sorted({row.partition for row in first}),
        "queuesOfAKey": max(row["count"] for row in spread),
    }


def _shown(headers: Any) -> Any:
    return headers and [[header.key, bytes(header.value).decode()] for header in headers]


if __name__ == "__main__":
    main()
