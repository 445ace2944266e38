"""`valueFormat=msgpack`: bodies to Arrow values and back."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import msgpack  # type: ignore[import-untyped]
import pyarrow as pa

from pyspark_rmq.payloads.bad_records import Decoded, Undecodable, decoded_by_row
from pyspark_rmq.payloads.formats import UTC
from pyspark_rmq.payloads.json_encoding import python_rows
from pyspark_rmq.payloads.native import plans
from pyspark_rmq.payloads.object_values import object_converter
from pyspark_rmq.payloads.spark_types import has_other_keys


class MsgpackDecoder:
    """Decodes bodies to one type."""

    def __init__(self, kind: Any, time_zone: str = UTC) -> None:
        self._kind = kind
        self._convert = object_converter(kind, time_zone)
        self._of_pairs = _distinct if has_other_keys(kind) else None
        self._planned = plans.planned(plans.MSGPACK, kind, takes_local=time_zone == UTC)

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body."""
        if self._planned is None:
            return self.by_row(bodies)
        return self._planned.decode(bodies, self.by_row)

    def by_row(self, bodies: Any) -> Decoded:
        """The reference: body by body."""
        return decoded_by_row(
            bodies, self._kind, lambda body: self._convert(_unpacked(body, self._of_pairs))
        )


def encode_msgpack(values: Any) -> Any:
    """A binary array with the encoding of each value of an array without nulls.

    Times are timestamps of msgpack; local times, dates and decimals are texts.
    """
    rows = python_rows(values, "msgpack")
    return pa.array(
        [msgpack.packb(row, default=_plain, datetime=True) for row in rows], pa.binary()
    )


def _unpacked(body: bytes, of_pairs: Callable[[Any], Any] | None) -> Any:
    """Raises `Undecodable`. The size of what is unpacked is bounded by the size of the body."""
    if not body:
        raise Undecodable("the body is empty")
    try:
        value = msgpack.unpackb(body, strict_map_key=False, object_pairs_hook=of_pairs)
    except UnicodeDecodeError:
        raise Undecodable("not msgpack: a text is not UTF-8") from None
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise Undecodable(
            f"not msgpack: {str(error).rstrip('.') or type(error).__name__}"
        ) from None
    if value is None:
        raise Undecodable("the body is null")
    return value


def _distinct(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    """The map. Of a key that occurs twice the last value is taken, but True is not the key 1."""
    found = dict(pairs)
    if len(found) < len(pairs) and len({(type(key), key) for key, _ in pairs}) > len(found):
        raise ValueError("a map has equal keys of several types")
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.date):
        # Also local times.
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    raise TypeError(f"no msgpack for {type(value).__name__}")
