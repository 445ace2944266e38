"""Classes of Protobuf messages, from a descriptor set. Needs the optional package protobuf."""

from __future__ import annotations

from typing import Any, Final

from broker_core import errors
from pyspark_rmq.payloads.schema_options import SchemaOptions

try:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError as DecodeError
except ImportError:
    raise errors.InvalidArgument(
        "valueFormat=protobuf needs the package protobuf, on the driver and on executors:"
        " pip install 'pyspark-rmq[protobuf]'"
    ) from None

TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
_SHOWN_MAX: Final = 10


def message_class(given: SchemaOptions) -> Any:
    """The class of the message. Raises `InvalidArgument`."""
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(given.descriptors).file
    except DecodeError:
        raise errors.InvalidArgument(_no_set(given, "it cannot be parsed")) from None
    if not files:
        raise errors.InvalidArgument(_no_set(given, "it has no files"))
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        try:
            pool.AddSerializedFile(file.SerializeToString())
            pool.FindFileByName(file.name)
        except (TypeError, KeyError, ValueError) as error:
            raise errors.InvalidArgument(_no_set(given, str(error))) from None
    try:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(given.message))
    except KeyError:
        names = sorted(_full_name(file, one) for file in files for one in file.message_type)
        shown = ", ".join(names[:_SHOWN_MAX]) + (", …" if len(names) > _SHOWN_MAX else "")
        raise errors.InvalidArgument(
            f"message {given.message} is not in the descriptor set of {given.option}. It has:"
            f" {shown or 'none'}"
        ) from None


def message_path(given: SchemaOptions) -> list[int]:
    """Places of the message in its file, of the outermost first."""
    found: list[int] = []
    descriptor = message_class(given).DESCRIPTOR
    while descriptor is not None:
        outer = descriptor.containing_type
        siblings = outer.nested_types if outer is not None else None
        if siblings is None:
            names = list(descriptor.file.message_types_by_name)
        else:
            names = [one.name for one in siblings]
        found.insert(0, names.index(descriptor.name))
        descriptor = outer
    return found


def _full_name(file: Any, message: Any) -> str:
    return f"{file.package}.{message.name}" if file.package else str(message.name)


def _no_set(given: SchemaOptions, reason: str) -> str:
    return (
        f"option {given.option} is no complete descriptor set: {reason}. Make it with protoc"
        " --include_imports --descriptor_set_out=FILE"
    )


def is_map(field: Any) -> bool:
    """Whether it is a map, which is a repeated message in the descriptor."""
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def field_of(descriptor: Any, name: str, path: str) -> Any:
    """A field by its name. Raises `InvalidArgument`."""
    found = descriptor.fields_by_name.get(name)
    if found is None:
        raise errors.InvalidArgument(
            f"{path}.{name}: message {descriptor.full_name} has no field {name}. It has:"
            f" {', '.join(field.name for field in descriptor.fields) or 'none'}"
        )
    return found


def shown_type(field: Any) -> str:
    """For errors."""
    if field.message_type:
        return f"message {field.message_type.full_name}"
    names = {getattr(field, name): name for name in dir(field) if name.startswith("TYPE_")}
    return names[field.type].removeprefix("TYPE_").lower()
