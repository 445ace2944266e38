"""Spark's `from_avro`, whose jar is not part of PySpark."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.interop.maven_artifacts import resolved_jars

# The newest that can be resolved. It also works with Spark 4.2 and 4.3.
SPARK_AVRO_VERSION: Final = "4.1.1"


def spark_avro_jar() -> Path:
    """For `ADD JAR`; raises `PeerUnavailable`."""
    name = f"spark-avro_2.13-{SPARK_AVRO_VERSION}"
    coordinates = [f"org.apache.spark:spark-avro_2.13:{SPARK_AVRO_VERSION}"]
    [jar] = resolved_jars(name, coordinates, alone=True).glob("*.jar")
    return jar
