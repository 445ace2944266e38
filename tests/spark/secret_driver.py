"""A driver that shows all that Spark can show: event log, pages of its UI, and a log of everything.

Arguments: work directory. The options, with a secret among them, come on the standard input: an
argument would be visible to every user of the machine.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from tests.spark.spark_session import new_session

PAGES = (
    "jobs", "stages", "storage", "environment", "executors", "SQL", "StreamingQuery",
    "SQL/execution/?id=0", "api/v1/applications",
)  # fmt: skip


def main(work: Path, options: dict[str, str]) -> None:
    spark = new_session(
        {
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (work / "events").as_uri(),
        }
    )
    spark.sparkContext.setLogLevel("DEBUG")
    rows = spark.range(5).selectExpr("cast(id as string) as value")
    rows.write.format("rmq").options(**options).option("topic", "In").mode("append").save()
    # Spark logs the text of statements, so that a secret comes from a file there.
    secret = work / "private" / "secret"
    secret.write_text(options["rmq.secret.key"])
    secret.chmod(0o600)
    named = {**options, "subscribe": "In", "rmq.secret.key.file": str(secret)}
    del named["rmq.secret.key"]
    texts = ", ".join(f"'{name}' '{value}'" for name, value in named.items())
    spark.sql(f"CREATE TEMPORARY VIEW words USING rmq OPTIONS ({texts})")
    # Beside what others have written.
    assert spark.sql("SELECT * FROM words").count() >= 5
    _stream(spark, options, work / "checkpoint")
    wrong = {**options, "rmq.secret.key": f"{options['rmq.secret.key']}-wrong"}
    try:
        spark.read.format("rmq").options(**wrong).load("In").collect()
    except (PySparkException, Py4JError) as error:
        sys.stderr.write(f"refused: {error}\n")
    _keep_pages(spark.sparkContext.uiWebUrl, work)
    spark.stop()


def _stream(spark: Any, options: dict[str, str], checkpoint: Path) -> None:
    source = spark.readStream.format("rmq").options(**options)
    stream = source.option("subscribe", "In").option("startingOffsets", "earliest").load()
    query = (
        stream.select("value")
        .writeStream.format("rmq")
        .options(**options)
        .option("topic", "Out")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _keep_pages(address: str, work: Path) -> None:
    (work / "pages").mkdir()
    for number, page in enumerate(PAGES):
        with urllib.request.urlopen(f"{address}/{page}", timeout=60) as answer:
            (work / "pages" / str(number)).write_bytes(answer.read())


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.load(sys.stdin))
