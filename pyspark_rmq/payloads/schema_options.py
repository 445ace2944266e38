"""Schemas of formats that need one, from options or files. Read on the driver. No Arrow."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_core import errors
from pyspark_rmq.payloads.registry.client import RegistryAddress, needed_schema

AUTO: Final = "auto"
NONE: Final = "none"
ALWAYS: Final = "always"
FRAMINGS: Final = (AUTO, NONE, ALWAYS)

_SIZE_MAX: Final = 16 << 20
_ID_FILE: Final = re.compile(r"([0-9]{1,10})\.avsc")


class SchemaOptions(NamedTuple):
    """Plain values, which are pickled: executors need no file."""

    option: str = ""
    """The option that they come from, for errors."""
    texts: tuple[tuple[int | None, str], ...] = ()
    """Avro schemas by id; None is for all other ids, and for bodies without one."""
    framing: str = AUTO
    descriptors: bytes = b""
    """A serialized FileDescriptorSet of Protobuf."""
    message: str = ""
    registry: RegistryAddress = RegistryAddress()
    """The registry that has the schemas, or of a sink the id to write."""

    def named(self, number: int | None) -> str:
        """Where a schema comes from, for errors."""
        return self.option if number is None else f"{self.option} ({number}.avsc)"


def avro_options(values: Any, prefix: str, writes: bool) -> SchemaOptions:
    """The schemas of a source, or with `writes` of a sink. Raises `InvalidArgument`."""
    text, path = values[f"{prefix}.schema"], values[f"{prefix}.schema.file"]
    registry = _registry(values, prefix)
    framing = _framing(values, prefix, registry, writes)
    if bool(text) + bool(path) + bool(registry.url) != 1:
        raise errors.InvalidArgument(
            f"{prefix}Format=avro needs one of the options {prefix}.schema (the JSON text),"
            f" {prefix}.schema.file (a file, or a directory of files ID.avsc) and"
            f" {prefix}.schema.registry.url"
        )
    if registry.url:
        return _of_registry(registry, framing, prefix, writes)
    if text:
        return SchemaOptions(f"{prefix}.schema", ((None, text),), framing, registry=registry)
    option = f"{prefix}.schema.file"
    place = Path(path)
    if not place.is_dir():
        texts = ((None, _text(place, option)),)
        return SchemaOptions(option, texts, framing, registry=registry)
    found = []
    for file in sorted(_listed(place, option)):
        number = _ID_FILE.fullmatch(file.name)
        if number is not None and int(number[1]) < 1 << 32:
            found.append((int(number[1]), _text(file, option)))
    if not found or framing == NONE or writes:
        raise errors.InvalidArgument(
            f"option {option}={path} is a directory, and must have files such as 7.avsc for the"
            f" schema with id 7; with {prefix}.schema.registry.framing=none give one file, and for"
            " a sink, too"
        )
    return SchemaOptions(option, tuple(found), framing)


def _of_registry(
    registry: RegistryAddress, framing: str, prefix: str, writes: bool
) -> SchemaOptions:
    option = f"{prefix}.schema.registry.url"
    if writes and registry.schema_id is None:
        raise errors.InvalidArgument(
            f"option {option} of a sink needs {prefix}.schema.registry.id, the schema to write with"
        )
    if framing == NONE:
        raise errors.InvalidArgument(
            f"option {option} needs bodies with a schema id: leave"
            f" {prefix}.schema.registry.framing=none out"
        )
    if not writes:
        return SchemaOptions(option, (), framing, registry=registry)
    assert registry.schema_id is not None
    text = needed_schema(registry, registry.schema_id)
    return SchemaOptions(option, ((None, text),), framing, registry=registry)


def _registry(values: Any, prefix: str) -> RegistryAddress:
    name = f"{prefix}.schema.registry"
    url, user, password = values[f"{name}.url"], values[f"{name}.user"], values[f"{name}.password"]
    if bool(user) != bool(password) or (user and not url):
        raise errors.InvalidArgument(
            f"options {name}.user and {name}.password go together, and with {name}.url"
        )
    return RegistryAddress(url, user, password, values[f"{name}.id"])


def _framing(values: Any, prefix: str, registry: RegistryAddress, writes: bool) -> str:
    name = f"{prefix}.schema.registry"
    framing: str = values[f"{name}.framing"]
    is_given = f"{name}.framing" in values.given
    if not writes:
        if registry.schema_id is not None and not registry.url:
            raise errors.InvalidArgument(f"option {name}.id of a source needs {name}.url")
        return framing
    if is_given and (framing == ALWAYS) != (registry.schema_id is not None):
        raise errors.InvalidArgument(
            f"options {name}.framing=always and {name}.id of a sink go together: bodies begin with"
            " the id"
        )
    return NONE if registry.schema_id is None else ALWAYS


def protobuf_options(values: Any, prefix: str, writes: bool) -> SchemaOptions:
    """The descriptors of `prefix`.schema.file. Raises `InvalidArgument`."""
    registry = _registry(values, prefix)
    framing = _framing(values, prefix, registry, writes)
    option, named = f"{prefix}.schema.file", f"{prefix}.message.name"
    path, message = values[option], values[named]
    if not path or not message:
        raise errors.InvalidArgument(
            f"{prefix}Format=protobuf needs the options {option} (a descriptor set, made by protoc"
            f" --include_imports --descriptor_set_out) and {named} (such as shop.Order)"
        )
    descriptors = file_bytes(Path(path), option)
    return SchemaOptions(
        option, framing=framing, descriptors=descriptors, message=message, registry=registry
    )


def _text(path: Path, option: str) -> str:
    try:
        return file_bytes(path, option).decode()
    except UnicodeDecodeError:
        raise errors.InvalidArgument(f"option {option}: {path} is not UTF-8") from None


def file_bytes(path: Path, option: str) -> bytes:
    """The content of a file on the driver. Raises `InvalidArgument`."""

    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(_SIZE_MAX + 1)

    found: bytes = _tried(read, option)
    if len(found) > _SIZE_MAX:
        raise errors.InvalidArgument(f"option {option}: {path} has more than {_SIZE_MAX} bytes")
    return found


def _listed(path: Path, option: str) -> list[Path]:
    found: list[Path] = _tried(lambda: list(path.iterdir()), option)
    return found


def _tried(action: Callable[[], Any], option: str) -> Any:
    try:
        return action()
    except OSError as error:
        raise errors.InvalidArgument(
            f"option {option}: {error.filename} cannot be read on the driver: {error.strerror}"
        ) from None
