"""Data loss: messages that a query can no longer read. Fails or warns."""

from __future__ import annotations

import logging
from typing import Final

from broker_core import errors

_log = logging.getLogger(__name__)

REMEDY: Final = (
    "To go on without what is lost, set failOnDataLoss=false; to keep messages longer, raise"
    " fileReservedTime on the broker; to begin anew, use a new checkpoint directory"
)


class DataLost(errors.RmqError):
    """Messages are lost, and failOnDataLoss is on."""


def report_loss(text: str, *, fails: bool) -> None:
    """Raise `DataLost`, or log a warning."""
    if fails:
        raise DataLost(f"{text}. {REMEDY}")
    _log.warning("%s; going on, because failOnDataLoss is off", text)
