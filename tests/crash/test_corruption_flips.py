"""F10: one flipped bit anywhere in a small store, after a clean close and after a kill.

Records of the log may be reported or make the open fail; derived files must simply be right again.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.crash.corruption import (
    CORRECT,
    REPORTED,
    Described,
    blamed_file,
    examine,
    examine_longer,
    tally,
)
from tests.crash.sample_store import Sample, closed_sample, killed_sample

pytestmark = pytest.mark.crash

# Files that can be rebuilt from the log: damage to them loses nothing.
DERIVED = re.compile(r"(consumequeue|index)/|(checkpoint|dispatch_checkpoint|abort|lock)$")
# Unused space is long and all alike; one byte of each stretch stands for the rest.
UNUSED = re.compile(rb"\0{24,}")
UNUSED_STEP = 24


def chosen_bits(content: bytes, rng: random.Random, *, every_bit: bool) -> Iterator[int]:
    """Which bits of a file to flip: one of every byte, or all."""
    if every_bit:
        yield from range(8 * len(content))
        return
    skipped = {
        place
        for unused in UNUSED.finditer(content)
        for place in range(unused.start() + 8, unused.end() - 8)
        if place % UNUSED_STEP
    }
    yield from (
        8 * place + rng.randrange(8) for place in range(len(content)) if place not in skipped
    )


def flipped(content: bytes, bit: int) -> bytes:
    """The content with one bit turned."""
    image = bytearray(content)
    image[bit >> 3] ^= 1 << (bit & 7)
    return bytes(image)


@pytest.mark.parametrize("make", [closed_sample, killed_sample])
def test_a_flipped_bit_is_never_served_and_never_cut_away(
    make: Callable[[], Sample], long_run: bool, summary_lines: list[str]
) -> None:
    sample = make()
    rng = random.Random(10)
    counts: Counter[str] = Counter()
    for path, content in sample.tree.items():
        for bit in chosen_bits(content, rng, every_bit=long_run):
            place = bit >> 3
            damaged = {**sample.tree, path: flipped(content, bit)}
            # A put, a close and a second open on top are dear; every 40th case has them.
            look = examine_longer if sum(counts.values()) % 40 == 0 else examine
            with Described(f"bit {bit & 7} of byte {place} of {path} ({sample.name})"):
                outcome = look(sample, damaged, blamed_file(sample, path, place, place + 1))
                if DERIVED.match(path):
                    assert outcome == CORRECT, "damage to a derived file must not be fatal"
                if path.startswith("commitlog/") and outcome == CORRECT:
                    position = int(path[-20:]) + place
                    assert sample.record_at(position) is None, "damage to a record went unseen"
                if path.startswith("staging/"):
                    assert outcome == REPORTED, "damage to a staged batch went unseen"
            counts[outcome] += 1
    assert sum(counts.values()) > 5_000
    summary_lines.append(
        f"F10 flipped bits     {sample.name:8} {sum(counts.values()):6} cases: {tally(counts)}"
    )
