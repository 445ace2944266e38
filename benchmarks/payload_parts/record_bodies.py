"""Records of 5 and of 50 fields in every payload format, for `payloads.py`."""

from __future__ import annotations

import datetime
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2

from pyspark_rmq.payloads.avro.encoding import AvroEncoder
from pyspark_rmq.payloads.json_encoding import encode_json
from pyspark_rmq.payloads.msgpack_bodies import encode_msgpack
from pyspark_rmq.payloads.protobuf.encoding import ProtobufEncoder
from pyspark_rmq.payloads.schema_options import NONE, SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP

JSON: Final = "json"
MSGPACK: Final = "msgpack"
AVRO: Final = "avro"
PROTOBUF: Final = "protobuf"
FORMATS: Final = (JSON, MSGPACK, AVRO, PROTOBUF)
SIZES: Final = (5, 50)
# Different bodies; topics repeat them.
DISTINCT: Final = 2_000
MESSAGE: Final = "bench.Order"
_FIRST: Final = datetime.datetime(2024, 5, 31, 12, tzinfo=datetime.timezone.utc)


class Field(NamedTuple):
    """A kind of field in each schema language."""

    name: str
    sql: str
    arrow: Any
    avro: Any
    protobuf: int
    value: Callable[[random.Random], Any]


_CYCLE: Final = (
    Field("orderId", "STRING", pa.string(), "string", 9, lambda r: f"order-{r.randrange(10**9)}"),
    Field("city", "STRING", pa.string(), "string", 9, lambda r: r.choice(_CITIES)),
    Field("quantity", "BIGINT", pa.int64(), "long", 3, lambda r: r.randrange(10**6)),
    Field("amount", "DOUBLE", pa.float64(), "double", 1, lambda r: r.randrange(10**7) / 100),
    Field(
        "at", "TIMESTAMP", TIMESTAMP, {"type": "long", "logicalType": "timestamp-micros"}, 11,
        lambda r: _FIRST + datetime.timedelta(microseconds=r.randrange(10**12)),
    ),
)  # fmt: skip
_CITIES: Final = ("Oslo", "Lima", "Montréal", "Nairobi", "Shanghai", "Reykjavík")


class Records(NamedTuple):
    """Rows of one width."""

    fields: tuple[Field, ...]
    values: Any

    @property
    def sql(self) -> str:
        """Fields as in `STRUCT<…>`."""
        return self.sql_of(len(self.fields))

    def sql_of(self, count: int) -> str:
        """Some of the fields, spread evenly over all of them."""
        chosen = self.fields[:: len(self.fields) // count][:count]
        return ", ".join(f"{field.name}: {field.sql}" for field in chosen)

    @property
    def avro_schema(self) -> str:
        fields = [{"name": field.name, "type": field.avro} for field in self.fields]
        return json.dumps({"type": "record", "name": "Order", "fields": fields})

    @property
    def descriptors(self) -> bytes:
        """A serialized FileDescriptorSet."""
        file = descriptor_pb2.FileDescriptorProto(
            name="bench.proto", package="bench", syntax="proto3",
            dependency=["google/protobuf/timestamp.proto"],
        )  # fmt: skip
        message = file.message_type.add(name="Order")
        for number, field in enumerate(self.fields, 1):
            added = message.field.add(name=field.name, number=number, type=field.protobuf, label=1)
            if field.protobuf == added.TYPE_MESSAGE:
                added.type_name = ".google.protobuf.Timestamp"
        found = descriptor_pb2.FileDescriptorSet()
        timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
        found.file.add().CopyFrom(file)
        return found.SerializeToString()

    def bodies(self, body_format: str) -> Any:
        """A binary array."""
        if body_format == JSON:
            return encode_json(self.values)
        if body_format == MSGPACK:
            return encode_msgpack(self.values)
        options = self.schema_options(body_format)
        encoder = AvroEncoder if body_format == AVRO else ProtobufEncoder
        return encoder(self.values.type, options).encode(self.values)

    def schema_options(self, body_format: str) -> SchemaOptions:
        """For encoders and decoders outside of Spark."""
        if body_format == AVRO:
            return SchemaOptions("value.schema", ((None, self.avro_schema),), NONE)
        return SchemaOptions("value.schema.file", descriptors=self.descriptors, message=MESSAGE)

    def options(self, body_format: str, root: Path) -> Mapping[str, str]:
        """For the source; a file that it needs is written below `root`."""
        found = {"valueFormat": body_format}
        if body_format == AVRO:
            found |= {"value.schema": self.avro_schema, "value.schema.registry.framing": NONE}
        if body_format == PROTOBUF:
            path = self.descriptor_file(root)
            found |= {"value.schema.file": str(path), "value.message.name": MESSAGE}
        return found

    def descriptor_file(self, root: Path) -> Path:
        path = root / f"order-{len(self.fields)}.desc"
        path.write_bytes(self.descriptors)
        return path


def records(width: int) -> Records:
    """Rows of `width` fields, the same in each run."""
    fields = _CYCLE
    if width > len(_CYCLE):
        fields = tuple(
            _CYCLE[number % len(_CYCLE)]._replace(
                name=f"{_CYCLE[number % len(_CYCLE)].name}{number}"
            )
            for number in range(width)
        )
    chance = random.Random(7)
    rows = [{field.name: field.value(chance) for field in fields} for _ in range(DISTINCT)]
    kind = pa.struct([pa.field(field.name, field.arrow) for field in fields])
    return Records(fields, pa.array(rows, kind))
