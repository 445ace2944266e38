"""How fast typed payloads are read, as ratios taken in one run on one machine.

    python benchmarks/payloads.py [--quick] [--only NAME ...] [--scale X] [--spark-conf]

Records of 5 and of 50 fields (texts, integers, doubles, times) by `spark.read`, `local[2]`, 4
queues or partitions. `valueFormat=…` against our source with `value BINARY` only and Spark's own
function behind it: `from_json`, `from_avro`, `from_protobuf`. For msgpack Spark has no function, so
a pandas UDF with the package msgpack stands there, and one with the package protobuf where no jar
with `from_protobuf` can be resolved; the row says so. All competitors return the same STRUCT. Every
row names its settings and shows median and range, the order of the competitors changes from round
to round, and the first round only warms up. Runs on Spark 4.2.1, as `spark_source.py` does. Nothing
here passes or fails.

    json, msgpack, avro, protobuf   one format: 5 and 50 fields, and 3 of 50 against all of them
    kafka                           JSON against Spark's Kafka source, tuned, with from_json
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.payload_parts import competitors
from benchmarks.spark_parts import command

PARTS = ("json", "msgpack", "avro", "protobuf", "kafka")

if __name__ == "__main__":
    sys.exit(
        command.main(__doc__, PARTS, "benchmarks.payload_parts.reads", competitors.format_jars)
    )
