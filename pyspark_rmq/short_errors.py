"""Shortens the errors that Spark shows, to little more than the message.

Spark puts the traceback of a Python data source before its message. Frames of this package do not
help a user who gave a wrong option.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Final, ParamSpec, TypeVar

from broker_core import errors

# Found unusable when a connection is made, where they have the client's names.
_TLS_FILES: Final = {"tls_ca": "rmq.tls.ca", "tls_cert": "rmq.tls.cert", "tls_key": "rmq.tls.key"}
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


def short_row_errors(method: Callable[P, Iterator[T]]) -> Callable[P, Iterator[T]]:
    """`short_errors` for a method that returns rows and raises while they are read."""

    @functools.wraps(method)
    def rows(*args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        try:
            yield from method(*args, **kwargs)
        except errors.RmqError as error:
            found = _explained(error)
        else:
            return
        raise found.with_traceback(None) from None

    return rows


def _explained(error: errors.RmqError) -> errors.RmqError:
    if errors.ERROR_PAGE in str(error):
        return error
    if isinstance(error, errors.InvalidConfig) and error.key in _TLS_FILES:
        return error.renamed(_TLS_FILES[error.key])
    if isinstance(error, errors.TlsFailed) or (
        isinstance(error, errors.NameServersSilent) and error.tls_failed
    ):
        return type(error)(
            errors.explained(
                f"{error}. Compare the options rmq.tls.enable, rmq.tls.ca and rmq.tls.cert with the"
                " TLS settings of the server",
                "tls-mismatch",
            )
        )
    if isinstance(error, errors.NoPermission) and error.is_of_account:
        text = errors.explained(
            f"{error}. Compare the options rmq.access.key and rmq.secret.key.file with the accounts"
            " of the cluster",
            "access-denied",
        )
        return errors.NoPermission(error.code, text)
    if type(error) is errors.ConnectionLost and error.is_unreachable:
        return errors.ConnectionLost(
            errors.explained(
                f"{error}. Start the broker or, if this machine reaches it at another address, set"
                " its brokerIP1, or the option rmq.broker.address.rewrite",
                "broker-not-reached",
            )
        )
    if not isinstance(error, errors.NameServersSilent):
        return error
    return errors.NameServersSilent(
        errors.explained(
            f"{error}. Set the option rmq.namesrv.addr to name servers that this machine can reach,"
            " or start the cluster",
            "name-servers-not-reached",
        )
    )
