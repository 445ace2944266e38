"""Rows as tables."""

from __future__ import annotations

import datetime
import sys

import pytest

from broker_core.errors import InvalidArgument
from broker_core.notebook.tables import moment, table

ROWS = [("a", 1), ("b", 2)]


def test_a_frame_of_pandas() -> None:
    found = table(["name", "count"], ROWS)
    assert list(found.columns) == ["name", "count"]
    assert [tuple(row) for row in found.itertuples(index=False)] == ROWS


def test_neither_is_an_error_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidArgument, match="pip install pandas"):
        table(["name", "count"], ROWS)


def test_moments() -> None:
    assert moment(0) is None
    assert moment(-1) is None
    assert moment(1_500) == datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, datetime.timezone.utc)
