"""F13: misdirected writes (a page of one file in another), duplicated writes, and lost ones (an old
version of a page comes back).

A log record knows its position and is checksummed together with it; queue and index files are
checksummed as a whole. So a page in the wrong place is either reported or put right.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.crash.corruption import Described, MayReport, anything, blamed_file, examine, tally
from tests.crash.sample_store import Sample, Tree, closed_sample, killed_sample, trimmed_sample

pytestmark = pytest.mark.crash

CASES = 400
# The files are small, so the pages are too: a page must be less than a file to be misplaced in it.
PAGE_SIZES = (64, 256, 512)


def with_page(tree: Tree, path: str, start: int, page: bytes) -> Tree:
    """The page at `start` of a file, whose length stays."""
    content = tree[path]
    page = page[: len(content) - start]
    return {**tree, path: content[:start] + page + content[start + len(page) :]}


def blamed_files(sample: Sample, after: Tree) -> MayReport:
    """Which questions may raise, by the bytes that really differ."""
    before = sample.tree
    changed = [path for path in before if before[path] != after[path]]
    if len({path.partition("/")[0] for path in changed}) > 1:
        # A queue that is damaged together with its records cannot be built again.
        return anything
    blamed = []
    for path in changed:
        old, new = before[path], after[path]
        differing = [n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b]
        start = differing[0] if differing else min(len(old), len(new))
        blamed.append(blamed_file(sample, path, start, max(len(old), len(new))))
    return lambda question: any(may(question) for may in blamed)


def misplaced(sample: Sample, rng: random.Random) -> Iterator[tuple[str, Tree]]:
    """A page written to a second place, or two pages exchanged."""
    paths = sorted(sample.tree)
    for _ in range(CASES):
        size = rng.choice(PAGE_SIZES)
        source, target = rng.choice(paths), rng.choice(paths)
        pages = [
            size * rng.randrange(-(-len(sample.tree[path]) // size)) for path in (source, target)
        ]
        page = sample.tree[source][pages[0] : pages[0] + size]
        tree = with_page(sample.tree, target, pages[1], page)
        label = f"{size} bytes of {source} at {pages[0]} in {target} at {pages[1]}"
        if rng.random() < 0.5:
            back = sample.tree[target][pages[1] : pages[1] + size]
            tree = with_page(tree, source, pages[0], back)
            label += ", exchanged"
        yield label, tree


def old_versions(sample: Sample) -> Iterator[tuple[str, Tree]]:
    """Each page of each file, and each whole file, as it was when the store was half as full."""
    for path in sample.older.keys() & sample.tree.keys():
        old, new = sample.older[path], sample.tree[path]
        if old == new:
            continue
        yield f"old version of {path}", {**sample.tree, path: old}
        for size in PAGE_SIZES:
            for start in range(0, len(new), size):
                if old[start : start + size] != new[start : start + size]:
                    tree = with_page(sample.tree, path, start, old[start : start + size])
                    yield f"old {size} bytes of {path} at {start}", tree


@pytest.mark.parametrize("make", [closed_sample, killed_sample, trimmed_sample])
def test_a_page_in_the_wrong_place_or_of_another_time(
    make: Callable[[], Sample], long_run: bool, summary_lines: list[str]
) -> None:
    sample = make()
    counts: Counter[str] = Counter()
    rounds = 25 if long_run else 1
    cases = [case for seed in range(rounds) for case in misplaced(sample, random.Random(13 + seed))]
    for label, tree in (*cases, *old_versions(sample)):
        if tree == sample.tree:
            continue
        with Described(f"{label} ({sample.name})"):
            counts[examine(sample, tree, blamed_files(sample, tree))] += 1
    assert sum(counts.values()) > 300
    summary_lines.append(
        f"F13 pages            {sample.name:8} {sum(counts.values()):6} cases: {tally(counts)}"
    )
