"""Descriptors of messages for tests, made without protoc."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2

from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.payloads.spark_types import TIMESTAMP

_OPTIONAL, _REQUIRED, _REPEATED = 1, 2, 3
_TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9,
    "message": 11, "bytes": 12, "uint32": 13, "enum": 14, "sint32": 17, "sint64": 18,
}  # fmt: skip

# Name -> type, for `proto3` without presence, unless it is a message or marked with ?.
ORDER = {
    "id": "string", "n": "int32", "big": "uint64", "small": "uint32", "zig": "sint64",
    "f": "float", "d": "double", "yes": "bool", "raw": "bytes", "size": "enum:.shop.Size",
    "maybe": "?int32", "at": "message:.google.protobuf.Timestamp", "line": "message:.shop.Line",
    "lines": "*message:.shop.Line", "numbers": "*int64", "next": "message:.shop.Order",
    "counts": "*message:.shop.Order.CountsEntry", "byName": "*message:.shop.Order.ByNameEntry",
    "card": "|string", "cash": "|int32",
}  # fmt: skip
KIND = pa.struct(
    [
        ("id", pa.string()), ("n", pa.int32()), ("big", pa.decimal128(20, 0)),
        ("small", pa.int64()), ("zig", pa.int64()), ("f", pa.float32()), ("d", pa.float64()),
        ("yes", pa.bool_()), ("raw", pa.binary()), ("size", pa.string()), ("maybe", pa.int32()),
        ("at", TIMESTAMP), ("line", pa.struct([("a", pa.int32())])),
        ("lines", pa.list_(pa.struct([("a", pa.int32())]))), ("numbers", pa.list_(pa.int64())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("byName", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
        ("card", pa.string()), ("cash", pa.int32()),
        ("next", pa.struct([("id", pa.string()), ("next", pa.struct([("id", pa.string())]))])),
    ]
)  # fmt: skip


def _add_fields(message: Any, fields: dict[str, str], label: int = _OPTIONAL) -> None:
    for number, (name, text) in enumerate(fields.items(), 1):
        mark = text[0] if text[0] in "?*|" else ""
        word, _, type_name = text.lstrip("?*|").partition(":")
        field = message.field.add(name=name, number=number, type=_TYPES[word])
        field.label = _REPEATED if mark == "*" else label
        if type_name:
            field.type_name = type_name
        if mark == "|":
            field.oneof_index = 0
        if mark == "?":
            field.proto3_optional = True
            field.oneof_index = 1


# Maps of the message Keyed -> the type of their keys.
KEYS = {"int": "int32", "long": "int64", "zig": "sint32", "small": "uint32", "yes": "bool"}


def _file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )  # fmt: skip
    order = file.message_type.add(name="Order")
    order.oneof_decl.add(name="payment")
    order.oneof_decl.add(name="_maybe")
    _add_fields(order, ORDER)
    for name, value in (("CountsEntry", "int32"), ("ByNameEntry", "message:.shop.Line")):
        entry = order.nested_type.add(name=name)
        entry.options.map_entry = True
        _add_fields(entry, {"key": "string", "value": value})
    _add_fields(file.message_type.add(name="Line"), {"a": "int32"})
    size = file.enum_type.add(name="Size")
    size.value.add(name="S", number=0)
    size.value.add(name="L", number=5)
    return file


def _old_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    _add_fields(file.message_type.add(name="Old"), {"id": "string"}, _REQUIRED)
    return file


def _flat_file() -> Any:
    """Messages for readers without a schema: one of every type, and some without a column."""
    file = descriptor_pb2.FileDescriptorProto(
        name="flat.proto", package="shop", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "shop.proto"],
    )  # fmt: skip
    flat = file.message_type.add(name="Flat")
    flat.oneof_decl.add(name="unused")
    flat.oneof_decl.add(name="_maybe")
    left_out = ("next", "byName", "card", "cash")
    fields = {name: kind for name, kind in ORDER.items() if name not in left_out}
    _add_fields(flat, {**fields, "counts": "*message:.shop.Flat.CountsEntry"})
    del flat.oneof_decl[0]
    for field in flat.field:
        if field.proto3_optional:
            field.oneof_index = 0
    numbered = file.message_type.add(name="Numbered")
    _add_fields(numbered, {"counts": "*message:.shop.Numbered.CountsEntry"})
    for message, key in ((flat, "string"), (numbered, "uint64")):
        entry = message.nested_type.add(name="CountsEntry")
        entry.options.map_entry = True
        _add_fields(entry, {"key": key, "value": "int32"})
    keyed = file.message_type.add(name="Keyed")
    entries = {name: f"*message:.shop.Keyed.{name.title()}Entry" for name in KEYS}
    _add_fields(keyed, entries)
    for name, key in KEYS.items():
        entry = keyed.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        _add_fields(entry, {"key": key, "value": "int32"})
    file.message_type.add(name="Empty")
    return file


def descriptor_set(with_imports: bool = True) -> bytes:
    """As protoc writes it, with or without --include_imports."""
    timestamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    files = [timestamp] if with_imports else []
    found = descriptor_pb2.FileDescriptorSet(file=[*files, _file(), _old_file(), _flat_file()])
    return bytes(found.SerializeToString())


def given(message: str = "shop.Order", descriptors: bytes | None = None) -> SchemaOptions:
    found = descriptor_set() if descriptors is None else descriptors
    return SchemaOptions("value.schema.file", descriptors=found, message=message)
