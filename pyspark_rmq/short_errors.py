"""Shortens the errors of planning that Spark shows, to little more than the message.

Spark puts the traceback of a Python data source before its message. Frames of this package do not
help a user who gave a wrong option.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from broker_core import errors

P = ParamSpec("P")
T = TypeVar("T")


def short_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Raise errors of this package without the frames that led to them."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except errors.RmqError as error:
            found = _explained(error)
        raise found.with_traceback(None) from None

    return call


def _explained(error: errors.RmqError) -> errors.RmqError:
    if not isinstance(error, errors.NameServersSilent):
        return error
    return errors.NameServersSilent(
        errors.explained(
            f"{error}. Set the option rmq.namesrv.addr to name servers that this machine can reach,"
            " or start the cluster",
            "name-servers-not-reached",
        )
    )
