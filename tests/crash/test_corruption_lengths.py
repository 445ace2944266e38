"""F11: files that are too short, too long, or end in zeros or garbage, for every kind of file.

A log file of the wrong length is refused by name; derived files are built again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from broker_core.errors import CorruptStore, StoreUnusable
from broker_core.store.writes.message import Message
from tests.crash.corruption import CORRECT, REFUSED, Described, blamed_file, examine, tally
from tests.crash.sample_store import (
    CONFIG,
    Sample,
    closed_sample,
    killed_sample,
    log_path,
    open_store,
    trimmed_sample,
)
from tests.crash.test_corruption_flips import DERIVED

pytestmark = pytest.mark.crash

HEADER_SIZES = (4, 8, 40, 91, 100, 512)


def length_classes(sample: Sample, path: str) -> list[int]:
    """Lengths below the real one that differ in what they cut."""
    size = len(sample.tree[path])
    lengths = {0, 1, size // 2, size - 1}
    lengths.update(header - 1 for header in HEADER_SIZES)
    if path.startswith("commitlog/"):
        base = int(path[-20:])
        for start, end in sample.records:
            if base <= start < base + size:
                lengths.update((start - base, (start + end) // 2 - base, end - base - 1))
    return sorted(length for length in lengths if 0 <= length < size)


def shapes(content: bytes, length: int, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """What may become of everything behind `length`."""
    rest = len(content) - length
    yield "cut", content[:length]
    yield "zeros", content[:length] + bytes(rest)
    yield "garbage", content[:length] + rng.randbytes(rest)
    yield "longer by zeros", content + bytes(rest)
    yield "longer by garbage", content + rng.randbytes(rest)


@pytest.mark.parametrize("make", [closed_sample, killed_sample, trimmed_sample])
def test_a_wrong_length_or_a_bad_end_is_refused_or_repaired(
    make: Callable[[], Sample], summary_lines: list[str]
) -> None:
    sample = make()
    rng = random.Random(11)
    counts: Counter[str] = Counter()
    for path, content in sample.tree.items():
        for length in length_classes(sample, path):
            for shape, damaged in shapes(content, length, rng):
                if damaged == content:
                    continue
                with Described(f"{path} {shape} at {length} ({sample.name})"):
                    blamed = blamed_file(sample, path, length, max(len(damaged), len(content)))
                    outcome = examine(sample, {**sample.tree, path: damaged}, blamed)
                    if DERIVED.match(path):
                        assert outcome == CORRECT, "damage to a derived file must not be fatal"
                    elif path.startswith("commitlog/") and shape.startswith("longer"):
                        assert outcome == REFUSED
                counts[outcome] += 1
    assert sum(counts.values()) >= 200
    summary_lines.append(
        f"F11 lengths, tails   {sample.name:8} {sum(counts.values()):6} cases: {tally(counts)}"
    )


def test_a_short_log_file_is_named_with_both_lengths() -> None:
    sample = closed_sample()
    path = log_path(CONFIG.commit_log_file_size)
    disk = sample.disk()
    disk.truncate(path, 700)
    with pytest.raises(CorruptStore, match=r"700 of 1024 bytes.*Restore the file") as caught:
        open_store(disk)
    assert caught.value.path == path
    assert caught.value.position == CONFIG.commit_log_file_size + 700


def test_a_log_written_with_another_file_size_is_refused_and_left_alone() -> None:
    sample = closed_sample()
    disk = sample.disk()
    disk.put(log_path(1024), bytes(2048))
    before = disk.tree()
    with pytest.raises(StoreUnusable, match=r"2048 bytes.*commit_log_file_size=1024"):
        open_store(disk)
    assert disk.tree() == before


def test_garbage_in_unused_space_of_the_log_never_keeps_a_store_from_opening() -> None:
    sample = closed_sample()
    last = log_path(3 * CONFIG.commit_log_file_size)
    used = sample.log_end - 3 * CONFIG.commit_log_file_size
    content = sample.tree[last]
    # The open looks at the first 8 bytes behind the end and refuses to guess what they mean.
    garbage = content[: used + 8] + b"\x5a" * (len(content) - used - 8)
    disk = sample.disk({**sample.tree, last: garbage})
    for number in range(4):
        store = open_store(disk)
        assert store.put_now(Message("later", b"body %d" % number)).ok
        store.close()
    store = open_store(disk)
    assert store.offsets("later", 0) == (0, 4)
    assert store.recovery.clean
