"""The digest of a batch of rows. Writers of staged blocks get it from the encoder at no extra pass;
this is for rows that are staged in another form than they are digested.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from broker_core.codec.native import column_crcs
from broker_core.codec.records.column_batch import Column, ColumnBatch
from broker_core.codec.records.row_digest import sum_of_digests, text_words


def digest_rows(batch: ColumnBatch, flags: Any = None) -> int:
    """The digest of a batch; `flags` has one integer per row if they differ."""
    if not batch.count:
        return 0
    columns = (batch.body, batch.tags, batch.keys, batch.properties)
    words = [None if column is None else _words(column, batch.count) for column in columns]
    given = batch.flag & 0xFFFFFFFF if flags is None else np.asarray(flags).astype(np.uint32)
    return sum_of_digests(words, given, batch.count)


def _words(column: Column, count: int) -> Any:
    data, offsets, width = column
    crcs = np.empty(count, np.uint32)
    column_crcs(data, offsets, width, crcs)
    ends = np.frombuffer(offsets, np.int32 if width == 4 else np.int64)
    return text_words(np.diff(ends), crcs)
