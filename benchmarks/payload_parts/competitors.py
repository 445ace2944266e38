"""What typed payloads are compared with: Spark's functions, or a pandas UDF where there is none."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Final

import pandas as pd

from benchmarks.measuring.results import info
from benchmarks.payload_parts import record_bodies
from benchmarks.payload_parts.record_bodies import Records
from benchmarks.peers import kafka
from tests.interop.maven_artifacts import PeerUnavailable, resolved_jars

# The newest of each that exists for the release of Spark; not every release is published.
_JARS: Final = {
    record_bodies.AVRO: ("spark-avro_2.13", (kafka.SPARK, "4.2.0", "4.1.1")),
    record_bodies.PROTOBUF: ("spark-protobuf_2.13", (kafka.SPARK, "4.2.0", "4.1.1")),
}


def format_jars() -> list[Path]:
    """The jars of `from_avro` and `from_protobuf` that can be resolved."""
    return [path for body_format in _JARS if (path := format_jar(body_format)) is not None]


@functools.cache
def format_jar(body_format: str) -> Path | None:
    """The jar with Spark's function; None if there is none."""
    artifact, releases = _JARS[body_format]
    for release in releases:
        coordinates = [f"org.apache.spark:{artifact}:{release}"]
        try:
            [found] = resolved_jars(f"{artifact}-{release}", coordinates, alone=True).glob("*.jar")
        except PeerUnavailable:
            continue
        return found
    info(f"{artifact} is not to be had as {', '.join(releases)}")
    return None


def parsed(body_format: str, records: Records, kind: str, root: Path) -> tuple[str, Any]:
    """Its name, and the column that decodes `value` to `kind`."""
    from pyspark.sql import functions as F

    if body_format == record_bodies.JSON:
        return "from_json", F.from_json(F.col("value").cast("string"), kind)
    if body_format == record_bodies.AVRO and (jar := format_jar(body_format)) is not None:
        from pyspark.sql.avro.functions import from_avro

        # FAILFAST, its default, is also what our default does.
        return f"from_avro ({jar.stem})", from_avro(F.col("value"), records.avro_schema)
    if body_format == record_bodies.PROTOBUF and (jar := format_jar(body_format)) is not None:
        from pyspark.sql.protobuf.functions import from_protobuf

        path = str(records.descriptor_file(root))
        column = from_protobuf(F.col("value"), record_bodies.MESSAGE, descFilePath=path)
        return f"from_protobuf ({jar.stem})", column
    return _with_pandas(body_format, records, kind)


def _with_pandas(body_format: str, records: Records, kind: str) -> tuple[str, Any]:
    from pyspark.sql import functions as F

    names = [field.name for field in records.fields]
    if body_format == record_bodies.MSGPACK:
        name, udf = "pandas UDF with msgpack", _msgpack_udf(names)
    elif body_format == record_bodies.AVRO:
        raise PeerUnavailable("no jar with from_avro")
    else:
        name, udf = "pandas UDF with protobuf", _protobuf_udf(names, records.descriptors)
    return name, F.pandas_udf(udf, kind)(F.col("value"))


def _msgpack_udf(names: list[str]) -> Any:
    def unpacked(bodies: pd.Series) -> pd.DataFrame:
        import msgpack  # type: ignore[import-untyped]

        rows = [msgpack.unpackb(body, timestamp=3) for body in bodies]
        return pd.DataFrame({name: [row.get(name) for row in rows] for name in names})

    return unpacked


def _protobuf_udf(names: list[str], descriptors: bytes) -> Any:
    def parsed_messages(bodies: pd.Series) -> pd.DataFrame:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
            pool.AddSerializedFile(file.SerializeToString())
        found = message_factory.GetMessageClass(pool.FindMessageTypeByName(record_bodies.MESSAGE))
        rows = [found.FromString(body) for body in bodies]

        def value(row: Any, name: str) -> Any:
            one = getattr(row, name)
            return one.ToDatetime() if hasattr(one, "ToDatetime") else one

        return pd.DataFrame({name: [value(row, name) for row in rows] for name in names})

    return parsed_messages
