"""Schemas of formats that need one, from options or files. Read on the driver. No Arrow."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker_core import errors

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

    def named(self, number: int | None) -> str:
        """Where a schema comes from, for errors."""
        return self.option if number is None else f"{self.option} ({number}.avsc)"


def avro_options(values: Any, prefix: str) -> SchemaOptions:
    """The schemas of `prefix`.schema or `prefix`.schema.file. Raises `InvalidArgument`."""
    text, path = values[f"{prefix}.schema"], values[f"{prefix}.schema.file"]
    framing = values[f"{prefix}.schema.registry.framing"]
    if bool(text) == bool(path):
        raise errors.InvalidArgument(
            f"{prefix}Format=avro needs one of the options {prefix}.schema (the JSON text) and"
            f" {prefix}.schema.file (a file, or a directory of files ID.avsc)"
        )
    if text:
        return SchemaOptions(f"{prefix}.schema", ((None, text),), framing)
    option = f"{prefix}.schema.file"
    place = Path(path)
    if not place.is_dir():
        return SchemaOptions(option, ((None, _text(place, option)),), framing)
    found = []
    for file in sorted(_listed(place, option)):
        number = _ID_FILE.fullmatch(file.name)
        if number is not None and int(number[1]) < 1 << 32:
            found.append((int(number[1]), _text(file, option)))
    if not found or framing == NONE:
        raise errors.InvalidArgument(
            f"option {option}={path} is a directory, and must have files such as 7.avsc for the"
            f" schema with id 7; with {prefix}.schema.registry.framing=none give one file"
        )
    return SchemaOptions(option, tuple(found), framing)


def protobuf_options(values: Any, prefix: str) -> SchemaOptions:
    """The descriptors of `prefix`.schema.file. Raises `InvalidArgument`."""
    option, named = f"{prefix}.schema.file", f"{prefix}.message.name"
    path, message = values[option], values[named]
    if not path or not message:
        raise errors.InvalidArgument(
            f"{prefix}Format=protobuf needs the options {option} (a descriptor set, made by protoc"
            f" --include_imports --descriptor_set_out) and {named} (such as shop.Order)"
        )
    return SchemaOptions(option, descriptors=file_bytes(Path(path), option), message=message)


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
