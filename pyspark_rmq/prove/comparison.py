"""What came out against what went in. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Comparison(NamedTuple):
    """Rows in and out; exactly once is no row lost, duplicated or strange."""

    rows_in: int
    rows_out: int
    lost: int
    duplicated: int
    strange: int

    @property
    def is_exact(self) -> bool:
        """Every row once, and nothing else."""
        return not (self.lost or self.duplicated or self.strange)


def compare(sent: Iterable[str], received: Iterable[str]) -> Comparison:
    """`sent` are the ids that went in; a row comes out as `out-` and its id."""
    expected = Counter(f"out-{name}" for name in sent)
    found = Counter(received)
    known = Counter({name: count for name, count in found.items() if name in expected})
    return Comparison(
        expected.total(),
        found.total(),
        (expected - known).total(),
        (known - expected).total(),
        found.total() - known.total(),
    )
