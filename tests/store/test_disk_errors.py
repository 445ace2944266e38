"""Errors of the disk get the name of the call."""

from __future__ import annotations

import pytest

from broker_core.errors import DiskFailed
from broker_core.store.disk_errors import names_disk_errors


@names_disk_errors
def offset_by_time(answer: int) -> int:
    """A call that may reach the disk."""
    if answer < 0:
        raise OSError(5, "Input/output error")
    return answer


def test_results_pass() -> None:
    assert offset_by_time(3) == 3
    assert offset_by_time.__doc__ == "A call that may reach the disk."


def test_an_error_of_the_disk_is_named() -> None:
    with pytest.raises(DiskFailed, match=r"offset by time: .*Input/output error") as failure:
        offset_by_time(-1)
    assert isinstance(failure.value.__cause__, OSError)
