"""Turns an `OSError` of the disk into `DiskFailed`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from broker_core.errors import DiskFailed

P = ParamSpec("P")
Result = TypeVar("Result")


def names_disk_errors(call: Callable[P, Result]) -> Callable[P, Result]:
    """Make `call` raise `DiskFailed` with its name instead of `OSError`."""
    what = call.__name__.replace("_", " ")

    @functools.wraps(call)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Result:
        try:
            return call(*args, **kwargs)
        except OSError as error:
            raise DiskFailed(f"{what}: {error}") from error

    return guarded
