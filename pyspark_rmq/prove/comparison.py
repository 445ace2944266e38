"""Comparison of output and input. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark_rmq.prove.ledger import digest_of, name_of

# Prefix that the transformation adds
_OUT: Final = "out-"


class Comparison(NamedTuple):
    """Numbers of rows. Exactly once: no row is lost, duplicated or strange."""

    rows_in: int
    rows_out: int
    lost: int
    duplicated: int
    strange: int

    @property
    def is_exact(self) -> bool:
        """Every row exactly once and nothing else; False if there was no input."""
        return self.rows_in > 0 and not (self.lost or self.duplicated or self.strange)


def compare(sent: Iterable[str], received: Iterable[str]) -> Comparison:
    """`sent` has the ids of the input; a row of the output is `out-` and its id."""
    expected = Counter(f"{_OUT}{name}" for name in sent)
    found = Counter(received)
    known = Counter({name: count for name, count in found.items() if name in expected})
    return Comparison(
        expected.total(),
        found.total(),
        (expected - known).total(),
        (known - expected).total(),
        found.total() - known.total(),
    )


def compare_bodies(digests: Mapping[str, str], received: Iterable[str]) -> Comparison:
    """`digests` has each row once, by name. A row whose body has another digest is strange."""
    return compare(digests, (_recognised(digests, body) for body in received))


def _recognised(digests: Mapping[str, str], body: str) -> str:
    row = body.removeprefix(_OUT)
    name = name_of(row)
    is_whole = body.startswith(_OUT) and digests.get(name) == digest_of(row)
    return f"{_OUT}{name}" if is_whole else f"strange {body}"


class Intake(NamedTuple):
    """Expected rows, compared with the source topic."""

    # Name -> digest: acknowledged rows, and rows without an answer that the topic has
    digests: dict[str, str]
    acknowledged: int
    # Acknowledged rows that the topic does not have exactly once and unchanged
    missing: int


def judge_intake(
    attempted: Mapping[str, str], acknowledged: Mapping[str, str], topic: Iterable[str]
) -> Intake:
    """A row without an answer may be stored or not: the topic decides.

    Acknowledged rows are always expected.
    """
    found = Counter(
        name for body in topic if attempted.get(name := name_of(body)) == digest_of(body)
    )
    stored = {name: attempted[name] for name in found}
    return Intake(
        {**stored, **acknowledged},
        len(acknowledged),
        sum(found[name] != 1 for name in acknowledged),
    )
