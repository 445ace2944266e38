"""Delays between retries, and the errors that are retried."""

from __future__ import annotations

import pytest

from broker_core.client.connection.backoff import Backoff, may_pass
from broker_core.errors import ConnectionLost, InvalidArgument, RemoteError, RmqError
from broker_core.protocol_codes import ResponseCode


def test_delays_double_up_to_the_limit_and_start_over() -> None:
    backoff = Backoff(first_ms=100, most_ms=400)
    for most_s in (0.1, 0.2, 0.4, 0.4):
        assert 0.8 * most_s <= backoff.next_s() <= most_s
    backoff.reset()
    assert backoff.next_s() <= 0.1


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ConnectionLost("gone"), True),
        (RemoteError(ResponseCode.SYSTEM_ERROR, "starting"), True),
        (RemoteError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "no heartbeat yet"), True),
        (RemoteError(ResponseCode.NO_PERMISSION, "no"), False),
        (InvalidArgument("no"), False),
    ],
)
def test_what_may_pass(error: RmqError, passes: bool) -> None:
    assert may_pass(error) is passes
