"""One job of the flush worker."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.storage.log.segment_file import Segment
from broker_core.storage.state.store_state import StoreState


class FlushJob(NamedTuple):
    """The steps of a job, in order: copies, syncs, then the store state."""

    copies: tuple[tuple[Segment, int, int], ...]
    syncs: tuple[Segment, ...]
    commit_target: int
    sync_target: int
    state: StoreState | None
