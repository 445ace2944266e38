"""JSON texts to Spark's binary form of a VARIANT and back, by PySpark's own functions."""

from __future__ import annotations

from typing import Any

import orjson

from broker_core import errors


def variant_of(text: str) -> dict[str, bytes]:
    """The value of a JSON text, as Arrow takes it. Raises `ValueError`."""
    value, metadata = _functions().parse_json(text)
    return {"value": value, "metadata": metadata}


def json_of(variant: Any) -> str:
    """The JSON text of a value; times in UTC. Raises `ValueError` for what JSON lacks."""
    text: str = _functions().to_json(variant["value"], variant["metadata"])
    # PySpark writes NaN and infinities as they are.
    orjson.loads(text)
    return text


def _functions() -> Any:
    try:
        from pyspark.sql.variant_utils import VariantUtils
    except ImportError:
        found = None
    else:
        found = VariantUtils
    if not hasattr(found, "parse_json") or not hasattr(found, "to_json"):
        raise errors.InvalidArgument(
            "this release of PySpark has no functions for VARIANT: read the body as a text,"
            ' .option("valueFormat", "string"), and use parse_json(value)'
        )
    return found
