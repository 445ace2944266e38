"""Limits on the size of a batch. Errors name them as `broker.conf` does, not as the store does.

`staging.py` limits how much of the staging area one sink may take.

A part is refused before it is prepared if it may not fit when it is completed: by then other
brokers have published their parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Final

from broker_core.codec.wire.bodies.sink_messages import PART_NOTE, SinkNote, encode_note
from broker_core.errors import StagingRefused
from broker_core.storage.log.commit_log import RecordRun
from broker_core.store.message_store import MessageStore

_REMEDIES: Final = {
    "group_size_max": (
        "sinkBatchSizeMax", "Set sinkBatchSizeMax higher in broker.conf, or write smaller batches",
    ),
    "staging_size_max": (
        "sinkStagingSizeMax", "Or set sinkStagingSizeMax higher in broker.conf",
    ),
}  # fmt: skip


def in_properties(text: str) -> str:
    """The text with the names of `broker.conf` properties, and the remedy."""
    for setting, (name, remedy) in _REMEDIES.items():
        if setting in text:
            return f"{text.replace(setting, name)}. {remedy}"
    return text


@contextlib.contextmanager
def naming_properties() -> Iterator[None]:
    """Rewrites refusals of the staging area with `in_properties`."""
    try:
        yield
    except StagingRefused as error:
        raise StagingRefused(in_properties(str(error))) from error


def check_part_fits(store: MessageStore, prepare: SinkNote, runs: Sequence[RecordRun]) -> None:
    """Raise `StagingRefused` if a part might be too large for a group when it is completed."""
    identity = prepare.identity
    note = encode_note(SinkNote(PART_NOTE, identity, prepare.token))
    room = store.groups.room(runs, note)
    if room.size_most > room.size_max:
        text = (
            f"the part of batch {identity.batch} of sink {identity.sink} that is staged here may "
            f"take {room.size_most} bytes of the log, group_size_max is {room.size_max}"
        )
        raise StagingRefused(in_properties(text))
