"""Decoders of framed bodies, which use the decoders of the formats."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from broker_core import errors
from pyspark_rmq.number_arrays import number_array
from pyspark_rmq.payloads.avro.bodies import AvroDecoder
from pyspark_rmq.payloads.avro.schemas import AvroType, parse_schema
from pyspark_rmq.payloads.bad_records import BadRow, Decoded, Decoder
from pyspark_rmq.payloads.registry.client import fetch_schema
from pyspark_rmq.payloads.registry.frames import FRAME_SIZE, frame_ids, path_size
from pyspark_rmq.payloads.schema_options import ALWAYS, NONE, SchemaOptions

_UNFRAMED: Final = "it does not begin with a zero byte and a schema id"
# Bounds the memory: random bytes look like ids, too.
_DECODERS_MAX: Final = 1_000


class RegistryDecoder:
    """Decodes Avro by the schemas of a registry, one decoder for each id.

    A schema that lacks a field gives null for it. One that does not fit the columns makes the
    bodies of its id bad, because other records may be in the same topic.
    """

    def __init__(self, kind: Any, given: SchemaOptions) -> None:
        self._kind = kind
        self._given = given
        self._decoders: dict[int, _PartDecoder | str] = {}
        number = given.registry.schema_id
        if number is not None:
            found = self._decoder(number)
            if isinstance(found, str):
                raise errors.InvalidArgument(f"option value.schema.registry.id={number}: {found}")

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        numbers = frame_ids(bodies)
        parts, rows, bad = [], [], []
        for number in np.unique(numbers).tolist():
            mine = np.flatnonzero(numbers == number)
            found = self._decoder(number) if number >= 0 else f"not Avro: {_UNFRAMED}"
            if isinstance(found, str):
                decoded = Decoded(pa.nulls(len(mine), self._kind))
                bad += [BadRow(row, found) for row in mine.tolist()]
            else:
                decoded = found.decode(bodies.take(number_array(mine)))
                bad += [BadRow(int(mine[row]), reason) for row, reason in decoded.bad]
            parts.append(decoded.values)
            rows.append(mine)
        if not parts:
            return Decoded(pa.nulls(0, self._kind))
        order = np.argsort(np.concatenate(rows), kind="stable")
        values = pa.concat_arrays(parts).take(number_array(order))
        return Decoded(values, sorted(bad))

    def _decoder(self, number: int) -> _PartDecoder | str:
        """A decoder, or the reason why there is none."""
        if number not in self._decoders:
            if len(self._decoders) >= _DECODERS_MAX:
                self._decoders.clear()
            self._decoders[number] = self._made(number)
        return self._decoders[number]

    def _made(self, number: int) -> _PartDecoder | str:
        registry = self._given.registry
        found = fetch_schema(registry, number)
        if found is None:
            return f"the schema registry {registry.url} has no schema {number}"
        if found.problem:
            return found.problem
        try:
            return _PartDecoder(self._kind, number, found.text)
        except errors.InvalidArgument as problem:
            return f"schema {number} of the registry: {problem}"


class _PartDecoder:
    """Decodes those fields of a type that one schema has."""

    def __init__(self, kind: Any, number: int, text: str) -> None:
        self._kind = kind
        part = kind
        if pa.types.is_struct(kind):
            known = _field_names(parse_schema(text, f"value.schema.registry.id={number}"))
            part = pa.struct([field for field in kind if field.name in known])
        given = SchemaOptions("value.schema.registry.url", ((number, text),), ALWAYS)
        self._is_whole = part == kind
        self._names = [field.name for field in part] if not self._is_whole else []
        self._decoder = AvroDecoder(part, given)

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        decoded = self._decoder.decode(bodies)
        if self._is_whole:
            return decoded
        values = decoded.values
        found = dict(zip(self._names, values.flatten(), strict=True))
        columns = [
            found[field.name] if field.name in found else pa.nulls(len(values), field.type)
            for field in self._kind
        ]
        whole = pa.StructArray.from_arrays(
            columns, fields=list(self._kind), mask=values.is_null() if decoded.bad else None
        )
        return Decoded(whole, decoded.bad)


def _field_names(schema: AvroType) -> set[str]:
    branches = [one for one in schema.inner if one.kind != "null"]
    record = branches[0] if schema.kind == "union" and len(branches) == 1 else schema
    return {name for name, _ in record.fields}


class FramedProtobufDecoder:
    """Removes frames. A Protobuf message never begins with a zero byte, so no body is ambiguous."""

    def __init__(self, decoder: Decoder, framing: str) -> None:
        self._decoder = decoder
        self._framing = framing

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        if self._framing == NONE:
            return self._decoder.decode(bodies)
        has_frame = frame_ids(bodies) >= 0
        if not has_frame.any() and self._framing != ALWAYS:
            return self._decoder.decode(bodies)
        plain: list[bytes] = []
        refused: dict[int, str] = {}
        for row, body in enumerate(bodies.to_pylist()):
            size = path_size(body, FRAME_SIZE) if has_frame[row] else None
            if size is not None:
                plain.append(body[FRAME_SIZE + size :])
                continue
            if has_frame[row] or self._framing == ALWAYS:
                refused[row] = f"not Protobuf with a schema id: {_UNFRAMED} and a message's path"
            plain.append(body)
        decoded = self._decoder.decode(pa.array(plain, pa.binary()))
        if not refused:
            return decoded
        keep = np.ones(len(plain), bool)
        keep[list(refused)] = False
        places = number_array(np.arange(len(plain)))
        values = decoded.values.take(_masked(places, keep))
        bad = {one.row: one for one in decoded.bad}
        bad |= {row: BadRow(row, reason) for row, reason in refused.items()}
        return Decoded(values, [bad[row] for row in sorted(bad)])


def _masked(places: Any, keep: Any) -> Any:
    return pc.if_else(pa.array(keep), places, pa.scalar(None, places.type))
