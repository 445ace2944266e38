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


NEW_STORE_REMEDY: Final = (
    "To begin anew, use a new checkpoint directory (checkpointLocation) or delete this one; to keep"
    " it and read the new store from its first message, set failOnDataLoss=false; to keep the"
    " messages of an embedded broker from run to run, give it a directory: EmbeddedBroker(store=…)"
)


class DataLost(errors.RmqError):
    """Messages are lost, and failOnDataLoss is on."""


def report_loss(text: str, *, fails: bool, remedy: str = REMEDY, anchor: str = "data-loss") -> None:
    """Raise `DataLost`, or log a warning."""
    if fails:
        raise DataLost(errors.explained(f"{text}. {remedy}", anchor))
    _log.warning("%s; going on, because failOnDataLoss is off", text)
