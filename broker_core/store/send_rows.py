"""Many messages of one topic at once, for a server: append them, and answer from what was stored.

Owner thread only. No checks of names and roles: the topic has taken a message the usual way before.
"""

from __future__ import annotations

from collections.abc import Callable

from broker_core.codec.column_batch import ColumnBatch
from broker_core.codec.record_columns import join_sent_replies
from broker_core.store.put_result import PutResult
from broker_core.store.store_parts import StoreParts


class SendRows:
    """`MessageStore.send_rows` gives it out."""

    def __init__(self, parts: StoreParts) -> None:
        self._parts = parts

    def append(self, batch: ColumnBatch) -> PutResult | None:
        """As many rows as the current file has room for; None when the long way has to be gone."""
        return self._parts.appender.append_rows(batch)

    def append_together(self, batch: ColumnBatch) -> PutResult | None:
        """All rows into the current file; None when the long way has to be gone."""
        return self._parts.appender.append_rows_together(batch)

    def tell_soon_if(self, is_awaited: Callable[[], bool]) -> None:
        """Ask after appends whether someone waits for an arrival; if not, it may be told later.

        Reads find everything that was acknowledged either way.
        """
        self._parts.is_awaited = is_awaited

    def replies(
        self, result: PutResult, marks: bytes, texts: bytes, constants: bytes, ending: bytes
    ) -> bytes:
        """The answers to what `append` stored; see `codec.send_burst_loops`."""
        segment = self._parts.log.segments.find(result.position)
        assert segment is not None
        return join_sent_replies(
            segment.target, result.position - segment.base, result.message_count,
            result.store_host, result.position, marks, texts, constants, ending,
        )  # fmt: skip
