"""The Python twin of the batch encoder."""

from __future__ import annotations

import pytest

from broker_core.codec.reference.batch import open_batch, plan_rows
from tests.codec.codec_backends import batch_of
from tests.codec.reference.batch_faults import BATCH_FAULTS


@pytest.mark.parametrize(("fields", "row", "reason"), [f for f in BATCH_FAULTS if f[1] >= 0])
def test_column_path_finds_the_same_faults(
    fields: dict[str, object], row: int, reason: str
) -> None:
    plan = plan_rows(open_batch(batch_of(b"a", b"b", **fields)), 0, 2)
    assert (plan.stop, plan.reason) == (row, reason)
