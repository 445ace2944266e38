"""The dispatch checkpoint: what a save covers, and what it still owes after a failure."""

from __future__ import annotations

import errno

import pytest

from broker_core.storage.derived.dispatch_checkpoint import load_checkpoint
from broker_core.store.message_store import MessageStore
from tests.fakes.simulated_disk import SimulatedDisk
from tests.store.small_store import apache_page, new_disk, numbered, open_small, put_all


def stored(count: int = 40) -> tuple[MessageStore, SimulatedDisk]:
    disk = new_disk()
    store = open_small(disk)
    for body in numbered(count, 100):
        disk.clock.advance(10)
        put_all(store, "T", [body], keys="k")
    return store, disk


def test_a_save_covers_everything_that_is_dispatched() -> None:
    store, disk = stored()
    derived = store._opened.derived
    assert derived.saved_position < store.dispatched_position
    derived.save_now()
    assert derived.saved_position == store.dispatched_position
    checkpoint = load_checkpoint(disk)
    assert checkpoint is not None
    assert checkpoint.position == store.dispatched_position
    ((queue),) = [queue for queue in checkpoint.queues if queue.topic == b"T"]
    assert (queue.min_offset, queue.max_offset) == (0, 40)
    # The units themselves are durable, in the files that the checkpoint describes.
    names = [path for path in disk.files() if path.startswith("consumequeue/T/0/")]
    assert len(names) == len(queue.files) == 2
    durable = b"".join(disk.durable_content(name) for name in sorted(names))
    assert durable[: 40 * 20] == store._opened.queues.find(b"T", 0).read(0, 40)  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["sync", "sync_dir", "rename"])
def test_a_failed_save_leaves_its_syncs_to_the_next_one(method: str) -> None:
    store, disk = stored()
    derived = store._opened.derived
    before = derived.saved_position
    snapshot = derived.snapshot()
    assert snapshot.files
    disk.fail(disk.operation_count, errno.EIO, sticky=True, methods={method})
    with pytest.raises(OSError, match="Input/output"):
        derived.save(snapshot)
    assert derived.saved_position == before
    put_later = derived.snapshot()
    assert set(snapshot.files) <= set(put_later.files)
    assert set(snapshot.directories) <= set(put_later.directories)
    derived.saved(put_later)
    assert derived.snapshot().files == []


def test_apaches_page_begins_before_the_keys_of_every_growing_file() -> None:
    """Apache's recovery removes index files that end after the index time."""
    store, disk = stored()
    derived, index = store._opened.derived, store._opened.index
    assert index is not None
    assert len(index.files) > 1
    derived.save_now()
    # The full files get their checksums during the first save, after the page was made.
    assert apache_page(disk).index_msg_timestamp == 0
    derived.save_now()
    page = apache_page(disk)
    growing = index.files[-1].header
    assert page.logics_msg_timestamp == page.physic_msg_timestamp
    assert page.physic_msg_timestamp <= growing.begin_timestamp
    assert page.index_msg_timestamp <= growing.begin_timestamp
    assert page.index_msg_timestamp == index.files[-2].header.end_timestamp
    # Nothing grows after the last save of a clean stop: the page may be as new as the log.
    derived.save_closing()
    closed = apache_page(disk)
    assert closed.physic_msg_timestamp == store._opened.dispatcher.store_timestamp
    assert closed.index_msg_timestamp == growing.end_timestamp
    # Before the file grows again, the page must be older than its first key.
    index.files[-1].crc = None
    derived.save_growing_index()
    assert apache_page(disk) == page
