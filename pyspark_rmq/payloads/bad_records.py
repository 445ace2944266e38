"""Records that cannot be decoded: the error, and what a decoder returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from broker_core import MessageQueue, errors

# Last column of a batch of messages if some bodies are not decompressed: why, else null.
UNREADABLE: Final = "unreadable body"


class BadRecord(errors.RmqError):
    """A body does not match the format or the schema, and badRecords=fail."""


class Undecodable(ValueError):
    """A body is not of its format, or not of its type. The text is the reason."""


class BadRow(NamedTuple):
    """A row of a batch that cannot be decoded."""

    row: int
    reason: str


class BadBody(NamedTuple):
    """A message of a queue that cannot be decoded."""

    offset: int
    body: bytes
    reason: str
    message_id: str
    """The broker's id of the message."""


class Decoded(NamedTuple):
    """The payloads of a batch."""

    values: Any
    """Arrow array; null for bad rows."""
    bad: Sequence[BadRow] = ()
    """In the order of rows."""
    places: Any = None
    """For each row the place of its body; None if every body is one row."""


class Decoder(Protocol):
    """Decodes bodies of one format to one Arrow type."""

    def decode(self, bodies: Any) -> Decoded:
        """The payload of each body, a binary array without nulls."""


def decoded_by_row(bodies: Any, kind: Any, decode: Callable[[bytes], Any]) -> Decoded:
    """`decode` of each body as an array of type `kind`; null where it raises `Undecodable`."""
    values: list[Any] = []
    bad: list[BadRow] = []
    for row, body in enumerate(bodies.to_pylist()):
        try:
            values.append(decode(body))
        except Undecodable as problem:
            values.append(None)
            bad.append(BadRow(row, str(problem)))
    return Decoded(pa.array(values, kind), bad)


def place_of(queue: MessageQueue, offset: int) -> str:
    """Where a message is, for errors and logs."""
    return f"offset {offset} of queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
