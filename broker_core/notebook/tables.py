"""Rows as a table: a pandas frame, or an Arrow table where pandas is not installed."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from broker_core.errors import InvalidArgument


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """A `pandas.DataFrame`, or a `pyarrow.Table` where only Arrow is installed."""
    try:
        import pandas
    except ImportError:
        return _arrow_table(columns, rows)
    return pandas.DataFrame.from_records(list(map(tuple, rows)), columns=list(columns))


def _arrow_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise InvalidArgument(
            "tables need pandas or pyarrow: pip install pandas (the extra 'spark' has both)"
        ) from None
    return pyarrow.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows])


def moment(epoch_ms: int) -> datetime.datetime | None:
    """A time of UTC; None for 0 and less."""
    if epoch_ms <= 0:
        return None
    return datetime.datetime.fromtimestamp(epoch_ms / 1000, datetime.timezone.utc)
