"""F12: files and directories that are gone.

Missing log data is refused by the name of the file; everything that the log can replace comes back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from broker_core.errors import CorruptStore
from broker_core.storage.derived.dispatch_checkpoint import DISPATCH_CHECKPOINT_FILE
from broker_core.storage.state.store_state import STATE_FILE
from tests.crash.corruption import (
    CORRECT,
    REFUSED,
    REPORTED,
    Described,
    MayReport,
    ask_everything,
    blamed_file,
    examine,
    examine_longer,
    tally,
)
from tests.crash.sample_store import (
    CONFIG,
    NEW_TABLE,
    OLD_TABLE,
    TABLE_PATH,
    Question,
    Sample,
    Tree,
    ask,
    closed_sample,
    killed_sample,
    log_path,
    open_store,
    trimmed_sample,
)

pytestmark = pytest.mark.crash


def without(tree: Tree, *prefixes: str) -> Tree:
    """The files whose paths start with none of the prefixes."""
    return {path: data for path, data in tree.items() if not path.startswith(prefixes)}


def without_file(tree: Tree, path: str) -> Tree:
    """All files but one."""
    return {other: data for other, data in tree.items() if other != path}


def new_identity(question: Question) -> bool:
    """The state is lost, so the epoch may change."""
    return question == ("identity",)


@pytest.mark.parametrize("make", [closed_sample, killed_sample, trimmed_sample])
def test_one_missing_file(make: Callable[[], Sample], summary_lines: list[str]) -> None:
    sample = make()
    counts: Counter[str] = Counter()
    for path in sample.tree:
        blamed: MayReport = blamed_file(sample, path, 0, len(sample.tree[path]))
        wanted = CORRECT
        if path.startswith("commitlog/") and int(path[-20:]) < sample.log_end:
            wanted = REFUSED
        elif path.startswith("staging/"):
            wanted = REPORTED
        with Described(f"{path} is missing ({sample.name})"):
            outcome = examine_longer(sample, without_file(sample.tree, path), blamed)
            assert outcome == wanted
        counts[outcome] += 1
    summary_lines.append(
        f"F12 missing files    {sample.name:8} {sum(counts.values()):6} cases: {tally(counts)}"
    )


@pytest.mark.parametrize("base", [0, 1024, 2048, 3072])
def test_a_missing_log_file_is_named_and_nothing_is_changed(base: int) -> None:
    sample = killed_sample()
    assert base < sample.log_end
    tree = without(sample.tree, log_path(base))
    disk = sample.disk(tree)
    with pytest.raises(CorruptStore, match="with durable data is missing") as caught:
        open_store(disk)
    assert caught.value.path == log_path(base)
    assert caught.value.position == base
    assert disk.tree() == tree


def test_a_store_without_its_log_directory_does_not_start_over() -> None:
    sample = closed_sample()
    with pytest.raises(CorruptStore, match="missing"):
        open_store(sample.disk(without(sample.tree, "commitlog/")))


@pytest.mark.parametrize(
    "prefixes",
    [
        ("consumequeue/",),
        ("consumequeue/orders/",),
        ("index/",),
        ("consumequeue/", "index/", "checkpoint"),
        (DISPATCH_CHECKPOINT_FILE, "checkpoint"),
        (DISPATCH_CHECKPOINT_FILE, "consumequeue/", "index/"),
        ("abort", "lock"),
    ],
)
@pytest.mark.parametrize("make", [closed_sample, killed_sample])
def test_derived_files_come_back_from_the_log(
    make: Callable[[], Sample], prefixes: tuple[str, ...]
) -> None:
    sample = make()
    tree = without(sample.tree, *prefixes)
    assert examine_longer(sample, tree) == CORRECT


@pytest.mark.parametrize("make", [closed_sample, killed_sample, trimmed_sample])
def test_rebuilt_queue_files_are_byte_identical(make: Callable[[], Sample]) -> None:
    """I5, also when the queue begins in the middle of a file because retention took its start."""
    sample = make()
    files = {}
    for removed in ((), ("consumequeue/",)):
        disk = sample.disk(without(sample.tree, *removed) if removed else sample.tree)
        store = open_store(disk)
        ask_everything(sample, disk, store, lambda _: False)
        store.close()
        files[removed] = {p: c for p, c in disk.tree().items() if p.startswith("consumequeue/")}
    if sample.name != "trimmed":
        assert files[()] == files["consumequeue/",]
    assert files[()].keys() >= files["consumequeue/",].keys()


@pytest.mark.parametrize("make", [closed_sample, killed_sample])
def test_a_lost_state_keeps_the_identity_and_raises_the_epoch(make: Callable[[], Sample]) -> None:
    sample = make()
    disk = sample.disk(without(sample.tree, STATE_FILE))
    store = open_store(disk)
    store_id, epoch = sample.answers["identity",]
    assert store.store_id == store_id
    assert store.epoch > epoch
    ask_everything(sample, disk, store, new_identity)
    store.close()


def test_only_the_log_is_left() -> None:
    """As after a restore from a backup of `commitlog`, or a directory from an Apache broker."""
    sample = closed_sample()
    tree = {path: data for path, data in sample.tree.items() if path.startswith("commitlog/")}
    disk = sample.disk(tree)
    store = open_store(disk)
    assert store.recovery.adopted
    left_out = ("identity", "staged", "table")
    for question, right in sample.answers.items():
        if question[0] not in left_out:
            assert ask(store, disk, sample.staged, question) == right, question
    store.close()


def test_the_backup_of_a_table_stands_in() -> None:
    sample = closed_sample()
    backup = f"{TABLE_PATH}.bak"
    for removed, wanted in ((backup, NEW_TABLE), (TABLE_PATH, OLD_TABLE)):
        disk = sample.disk(without_file(sample.tree, removed))
        store = open_store(disk)
        assert ask(store, disk, sample.staged, ("table",)) == wanted
        store.close()
    disk = sample.disk({**without(sample.tree, backup), TABLE_PATH: b"{"})
    store = open_store(disk)
    with pytest.raises(CorruptStore, match=TABLE_PATH):
        ask(store, disk, sample.staged, ("table",))
    store.close()


def test_an_empty_spare_at_the_end_may_be_missing_or_short() -> None:
    sample = killed_sample()
    spare = max(path for path in sample.tree if path.startswith("commitlog/"))
    assert int(spare[-20:]) >= sample.log_end
    for tree in (
        without(sample.tree, spare),
        {**sample.tree, spare: b""},
        {**sample.tree, spare: bytes(CONFIG.commit_log_file_size // 2)},
    ):
        assert examine(sample, tree) == CORRECT
