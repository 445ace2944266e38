"""F21: random damage to random files, several at once, then open and read everything.

Every answer must be right, and every refusal must be a named error. One pair
is left out: the log and the store state damaged together. The state holds the watermark that tells
a torn tail from damage, so without it the end of the log has no witness.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from broker_core.storage.state.store_state import STATE_FILE
from tests.crash.corruption import Described, anything, examine, examine_longer, tally
from tests.crash.sample_store import (
    Sample,
    Tree,
    closed_sample,
    killed_sample,
    trimmed_sample,
)

pytestmark = pytest.mark.crash

CASES = 1_700
LONG_CASES = 170_000
# Numbers that code likes to trip over, as they stand in a file.
NUMBERS = tuple(
    (value & (1 << 8 * width) - 1).to_bytes(width, "big")
    for width in (4, 8)
    for value in (0, 1, -1, 1 << 8 * width - 1, (1 << 8 * width - 1) - 1, 0x7FFF, 1 << 31)
)

Mutation = Callable[[bytes, random.Random, Tree], bytes | None]


def _place(content: bytes, rng: random.Random) -> int:
    # Heads are read first and believed most.
    return min(rng.randrange(len(content) + 1), rng.choice((len(content), 64)))


def flip_some(content: bytes, rng: random.Random, _: Tree) -> bytes:
    """One to eight bits."""
    image = bytearray(content)
    for _ in range(rng.randrange(1, 9)):
        if image:
            image[rng.randrange(len(image))] ^= 1 << rng.randrange(8)
    return bytes(image)


def plant_number(content: bytes, rng: random.Random, _: Tree) -> bytes:
    """A number at its limit in place of another."""
    start, number = _place(content, rng), rng.choice(NUMBERS)
    return (content[:start] + number + content[start + len(number) :])[: len(content)]


def overwrite(content: bytes, rng: random.Random, _: Tree) -> bytes:
    """A stretch of zeros, ones or noise."""
    start = _place(content, rng)
    size = rng.randrange(1, 200)
    filling = rng.choice((bytes(size), b"\xff" * size, rng.randbytes(size)))
    return (content[:start] + filling + content[start + size :])[: len(content)]


def shift(content: bytes, rng: random.Random, _: Tree) -> bytes:
    """Bytes put in or taken out; the rest moves."""
    start, size = _place(content, rng), rng.randrange(1, 40)
    if rng.random() < 0.5:
        return content[:start] + rng.randbytes(size) + content[start:]
    return content[:start] + content[start + size :]


def shorten(content: bytes, rng: random.Random, _: Tree) -> bytes:
    """Cut at a random place."""
    return content[: _place(content, rng)]


def exchange(_: bytes, rng: random.Random, tree: Tree) -> bytes:
    """The content of another file."""
    return tree[rng.choice(sorted(tree))]


def remove(_: bytes, __: random.Random, ___: Tree) -> None:
    """The file is gone."""
    return


MUTATIONS: tuple[Mutation, ...] = (
    flip_some,
    flip_some,
    plant_number,
    plant_number,
    overwrite,
    shift,
    shorten,
    exchange,
    remove,
)


def damaged(sample: Sample, rng: random.Random) -> tuple[str, Tree]:
    """One to four files mutated, and what was done to them."""
    tree = dict(sample.tree)
    done = []
    kinds: set[str] = set()
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        path = rng.choice(sorted(tree))
        kind = path.partition("/")[0]
        if {STATE_FILE, "commitlog"} <= kinds | {kind}:
            continue
        kinds.add(kind)
        mutation = rng.choice(MUTATIONS)
        if mutation is shift and kind == "config":
            # A table whose checksum is cut out exactly looks like one edited by hand.
            mutation = overwrite
        content = mutation(tree[path], rng, sample.tree)
        if content is None:
            del tree[path]
        else:
            tree[path] = content
        done.append(f"{mutation.__name__} {path}")
    return ", ".join(done), tree


@pytest.mark.parametrize("make", [closed_sample, killed_sample, trimmed_sample])
def test_random_damage_is_never_served(
    make: Callable[[], Sample], long_run: bool, summary_lines: list[str]
) -> None:
    sample = make()
    counts: Counter[str] = Counter()
    for seed in range(LONG_CASES if long_run else CASES):
        rng = random.Random(f"{sample.name} {seed}")
        label, tree = damaged(sample, rng)
        look = examine_longer if seed % 20 == 0 else examine
        with Described(f"seed {seed} ({sample.name}): {label}"):
            counts[look(sample, tree, anything)] += 1
    summary_lines.append(
        f"F21 fuzzed files     {sample.name:8} {sum(counts.values()):6} cases: {tally(counts)}"
    )
