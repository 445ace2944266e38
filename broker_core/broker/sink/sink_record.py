"""State of one sink, in memory and as JSON in `config/sinkBatches.json`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from broker_core.codec.json.fields import (
    flag_field,
    list_field,
    text_field,
    whole_field,
)
from broker_core.codec.records.staged_block import StagedPart
from broker_core.codec.wire.bodies.sink_messages import BatchIdentity, parse_part, part_fields
from broker_core.errors import InvalidArgument


class PublishedBatch(NamedTuple):
    """A published batch; retention may have removed its rows."""

    batch: int
    run: str
    content: str
    note: int
    """Offset of its note among all notes."""
    position: int
    end: int
    token: int = 0
    """Number of the attempt, if the batch is on several brokers."""
    others: tuple[str, ...] = ()
    """On the coordinator: the brokers that have the other parts."""
    attempt: str = ""
    """Name of the attempt; empty in files of earlier versions."""


class Decision(NamedTuple):
    """A batch on several brokers that this broker has decided."""

    batch: int
    token: int
    """0: no attempt; the entry only marks the batch from which on all decisions are listed."""
    note: int
    """Offset of its note among all notes."""
    attempt: str = ""


# All decisions are listed.
FROM_THE_BEGINNING: Final = Decision(-1, 0, -1)


class PreparedBatch(NamedTuple):
    """This broker's parts of a batch that another broker decides."""

    identity: BatchIdentity
    token: int
    parts: tuple[StagedPart, ...]
    note: int
    attempt: str = ""

    @property
    def key(self) -> tuple[int, int, str]:
        """The attempt, as decisions name it."""
        return self.identity.batch, self.token, self.attempt


class Sink:
    """State of one sink."""

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
        # Id of the query that owns the sink; empty if no writer gave one.
        self.query = ""
        self.once = False
        self.silent_since_ms = 0
        # This broker has decided batches of the sink.
        self.is_coordinator = False
        # Name of the other broker that decides, if known.
        self.coordinator = ""
        # (batch, token, name) of the attempt that may be decided; tokens only rise.
        self.reserved: tuple[int, int, str] = (-1, 0, "")
        # Oldest first, complete from the batch of the first entry on. Separate from `batches`, so
        # that batches on this broker alone do not evict what others must still complete.
        self.decisions: list[Decision] = [FROM_THE_BEGINNING]
        self.prepared: PreparedBatch | None = None
        # Value of the table's change count at the last change.
        self.change = 0

    @property
    def last(self) -> int:
        """The last published batch; -1 if there is none."""
        return self.batches[-1].batch if self.batches else -1

    def forget_from(self, note: int) -> None:
        """The log lost the notes from `note` on."""
        self.batches = [batch for batch in self.batches if batch.note < note]
        oldest = self.decisions[0]
        self.decisions = [made for made in self.decisions if made.note < note]
        if not self.decisions:
            self.decisions = [Decision(oldest.batch, 0, -1)]
        if self.prepared is not None and self.prepared.note >= note:
            self.prepared = None

    def find(self, batch: int) -> PublishedBatch | None:
        """A published batch that is still remembered."""
        return next((found for found in self.batches if found.batch == batch), None)


def sink_object(sink: Sink) -> dict[str, Any]:
    """JSON of the file."""
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
        "prepared": []
        if prepared is None
        else [
            list(prepared.identity),
            prepared.token,
            [part_fields(p) for p in prepared.parts],
            prepared.note,
            prepared.attempt,
        ],
        "decisions": [list(decision) for decision in sink.decisions],
        "batches": [[*b[:7], list(b.others), b.attempt] for b in sink.batches],
    }


def parse_sink(found: Mapping[str, Any]) -> Sink:
    """Parse JSON of the file; raises `InvalidArgument`."""
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
        # Earlier versions stored only the last batches.
        return [Decision(batch.batch, batch.token, batch.note) for batch in batches]
    items = list_field(found, "decisions")
    return [Decision._make(_typed(item, (int, int, int, str), "a decision")) for item in items]


_IDENTITY_KINDS: Final = (str, int, str, str, str, bool, str)
_PREPARED_KINDS: Final = (list, int, list, int, str)
_BATCH_KINDS: Final = (int, str, str, int, int, int, int, list, str)


def _typed(item: Any, kinds: tuple[type, ...], what: str) -> Any:
    """The checked fields of a list; earlier versions lack the last one, a text."""
    if isinstance(item, list) and len(item) == len(kinds) - 1:
        item = [*item, ""]
    if not isinstance(item, list) or tuple(map(type, item)) != kinds:
        raise InvalidArgument(f"{what} is not {', '.join(kind.__name__ for kind in kinds)}")
    return item
