"""What is known of one sink, in memory and as an object of `config/sinkBatches.json`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.codec.json_fields import (
    flag_field,
    list_field,
    text_field,
    whole_field,
)
from broker_core.codec.sink_messages import BatchIdentity, StagedPart, parse_part
from broker_core.errors import InvalidArgument


class PublishedBatch(NamedTuple):
    """One batch that is in the log, or was until retention took it."""

    batch: int
    run: str
    content: str
    note: int
    """Offset of its note among all notes."""
    position: int
    end: int
    token: int = 0
    """Of the attempt, when the batch is on several brokers."""
    others: tuple[str, ...] = ()
    """The brokers that have the rest of it; empty on those."""
    attempt: str = ""
    """The name of the attempt; empty for those of earlier versions."""


class Decision(NamedTuple):
    """A batch on several brokers that this one has decided."""

    batch: int
    token: int
    """0: no attempt, only the batch from which on all decisions are listed."""
    note: int
    """Offset of its note among all notes."""
    attempt: str = ""


# All decisions are listed.
FROM_THE_BEGINNING: Final = Decision(-1, 0, -1)


class PreparedBatch(NamedTuple):
    """This broker's part of a batch that another broker decides."""

    identity: BatchIdentity
    token: int
    parts: tuple[StagedPart, ...]
    note: int
    attempt: str = ""

    @property
    def key(self) -> tuple[int, int, str]:
        """The attempt that this is a part of, as decisions name it."""
        return self.identity.batch, self.token, self.attempt


class Sink:
    """What is known of one sink."""

    __slots__ = (
        "batches",
        "change",
        "coordinator",
        "decisions",
        "is_coordinator",
        "lineage",
        "once",
        "prepared",
        "query",
        "reserved",
        "runs",
        "silent_since_ms",
    )

    def __init__(self) -> None:
        # Oldest first; the last one is the last published.
        self.batches: list[PublishedBatch] = []
        # Newest first: runs[0] may publish, the others never again.
        self.runs: list[str] = []
        self.lineage = ""
        # The id of the query whose batches these are; empty when no writer has said.
        self.query = ""
        self.once = False
        self.silent_since_ms = 0
        # This broker has published as the one that decides.
        self.is_coordinator = False
        # Or another one does: its name, as far as it is known.
        self.coordinator = ""
        # (batch, token, name) of the attempt that may be decided; tokens only rise.
        self.reserved: tuple[int, int, str] = (-1, 0, "")
        # Oldest first: none is missing from the batch of the first one on. A list of its own, so
        # that batches on this broker alone do not push out what others must still complete.
        self.decisions: list[Decision] = [FROM_THE_BEGINNING]
        self.prepared: PreparedBatch | None = None
        # Number of its latest change in the whole table.
        self.change = 0

    @property
    def last(self) -> int:
        """The last published batch; -1 when there is none."""
        return self.batches[-1].batch if self.batches else -1

    def forget_from(self, note: int) -> None:
        """The log does not have the notes from this one on."""
        self.batches = [batch for batch in self.batches if batch.note < note]
        oldest = self.decisions[0]
        self.decisions = [made for made in self.decisions if made.note < note]
        if not self.decisions:
            self.decisions = [Decision(oldest.batch, 0, -1)]
        if self.prepared is not None and self.prepared.note >= note:
            self.prepared = None

    def find(self, batch: int) -> PublishedBatch | None:
        """A batch that is still remembered."""
        return next((found for found in self.batches if found.batch == batch), None)


def sink_object(sink: Sink) -> dict[str, Any]:
    """As the file has it."""
    prepared = sink.prepared
    return {
        "runs": sink.runs,
        "lineage": sink.lineage,
        "query": sink.query,
        "once": sink.once,
        "time": sink.silent_since_ms,
        "coordinator": sink.is_coordinator,
        "decidedBy": sink.coordinator,
        "reserved": list(sink.reserved),
        "prepared": [] if prepared is None else [
            list(prepared.identity), prepared.token, [list(p) for p in prepared.parts],
            prepared.note, prepared.attempt,
        ],
        "decisions": [list(decision) for decision in sink.decisions],
        "batches": [[*b[:7], list(b.others), b.attempt] for b in sink.batches],
    }  # fmt: skip


def parse_sink(found: Mapping[str, Any]) -> Sink:
    """From the file; raises `InvalidArgument` for what no version of ours wrote."""
    sink = Sink()
    sink.runs = [run for run in list_field(found, "runs") if isinstance(run, str)]
    sink.lineage = text_field(found, "lineage", "")
    sink.query = text_field(found, "query", "")
    sink.once = flag_field(found, "once", False)
    sink.silent_since_ms = whole_field(found, "time", 0)
    sink.is_coordinator = flag_field(found, "coordinator", False)
    sink.coordinator = text_field(found, "decidedBy", "")
    reserved = list_field(found, "reserved") or [-1, 0]
    sink.reserved = (*_typed(reserved, (int, int, str), "reserved"),)
    prepared = list_field(found, "prepared")
    if prepared:
        who, token, parts, note, name = _typed(prepared, _PREPARED_KINDS, "prepared")
        identity = BatchIdentity(*_typed(who, _IDENTITY_KINDS, "the identity of prepared"))
        sink.prepared = PreparedBatch(identity, token, tuple(map(parse_part, parts)), note, name)
    for item in list_field(found, "batches"):
        *fields, others, name = _typed(item, _BATCH_KINDS, "a batch")
        sink.batches.append(PublishedBatch._make([*fields, tuple(map(str, others)), name]))
    sink.decisions = _parse_decisions(found, sink.batches) or sink.decisions
    return sink


def _parse_decisions(found: Mapping[str, Any], batches: list[PublishedBatch]) -> list[Decision]:
    if "decisions" not in found:
        # An earlier version: older decisions than its last batches are not known any more.
        return [Decision(batch.batch, batch.token, batch.note) for batch in batches]
    items = list_field(found, "decisions")
    return [Decision._make(_typed(item, (int, int, int, str), "a decision")) for item in items]


_IDENTITY_KINDS: Final = (str, int, str, str, str, bool, str)
_PREPARED_KINDS: Final = (list, int, list, int, str)
_BATCH_KINDS: Final = (int, str, str, int, int, int, int, list, str)


def _typed(item: Any, kinds: tuple[type, ...], what: str) -> Any:
    """The fields of a list; the last one is a text that earlier versions do not have."""
    if isinstance(item, list) and len(item) == len(kinds) - 1:
        item = [*item, ""]
    if not isinstance(item, list) or tuple(map(type, item)) != kinds:
        raise InvalidArgument(f"{what} is not {', '.join(kind.__name__ for kind in kinds)}")
    return item
