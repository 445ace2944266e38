"""Hooks for every send: called before a message is stored and after its outcome is known.

A `before` hook rejects a send by raising an error of `broker_core.errors`, which becomes the
answer. An `after` hook cannot change the outcome: an exception is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from broker_core.protocol_codes import PutStatus

_log = logging.getLogger(__name__)


class SendContext(NamedTuple):
    """One send, as it is about to be stored."""

    producer_group: str
    topic: str
    queue_id: int
    message_count: int
    body_size: int
    properties: str
    peer: tuple[str, int]


class SendOutcome(NamedTuple):
    """The outcome of a send; -1 and empty ids when nothing was stored."""

    status: PutStatus
    queue_offset: int
    message_ids: str


BeforeSend = Callable[[SendContext], None]
AfterSend = Callable[[SendContext, SendOutcome], None]


class SendHooks:
    """The hooks of one broker, in the order they were added."""

    def __init__(self) -> None:
        self._before: list[BeforeSend] = []
        self._after: list[AfterSend] = []

    def __bool__(self) -> bool:
        return bool(self._before or self._after)

    def add(self, *, before: BeforeSend | None = None, after: AfterSend | None = None) -> None:
        """Add hooks. They cannot be removed."""
        if before is not None:
            self._before.append(before)
        if after is not None:
            self._after.append(after)

    def before(self, context: SendContext) -> None:
        """Call the `before` hooks."""
        for hook in self._before:
            hook(context)

    def after(self, context: SendContext, outcome: SendOutcome) -> None:
        """Call the `after` hooks."""
        for hook in self._after:
            try:
                hook(context, outcome)
            except Exception:  # noqa: BLE001 - the message is stored; a hook cannot undo that
                _log.exception("a hook after a send to %s failed", context.topic)
