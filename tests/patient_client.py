"""A `RemotingClient` and settings of brokers with long timeouts, for tests that are not about them.

A machine on which all tests run may stand still for seconds. Users would rather be told soon that a
server cannot be reached; a test would rather wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker_core.config import RemotingLimits
from broker_core.remoting.client import RemotingClient

PATIENT: Final = RemotingLimits(connect_timeout_ms=60_000)
# Else a store that was stopped for a second in the middle of a put refuses the next one as busy.
PATIENT_BROKER: Final[Mapping[str, str]] = {
    "osPageCacheBusyTimeOutMills": "120000",
    "syncFlushTimeout": "120000",
}


def patient_client(**options: Any) -> RemotingClient:
    """With the options of `RemotingClient` but its limits."""
    return RemotingClient(PATIENT, **options)
