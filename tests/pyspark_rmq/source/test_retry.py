"""Which errors of a read are retried."""

from __future__ import annotations

import pytest

from broker_core import errors
from pyspark_rmq.source.retry import is_passing


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (errors.ConnectionLost("gone"), True),
        (errors.UnexpectedAnswer("half an answer"), True),
        (errors.RemoteError(1, "starting"), True),
        (errors.NoPermission(16, "no"), False),
        (errors.RequestNotSupported(3, "unknown"), False),
        (errors.InvalidArgument("wrong"), False),
    ],
)
def test_errors(error: errors.RmqError, passes: bool) -> None:
    assert is_passing(error) is passes
