"""Staged records are verified when they are read."""

from __future__ import annotations

import pytest

from broker_core.codec.records.staged_block import StagedPart
from broker_core.errors import StagingRefused
from broker_core.storage.staging.staging_area import (
    STAGING_DIR,
)
from broker_core.store.message_store import MessageStore
from tests.store.small_store import bodies, new_disk, open_small, run_of


def staged(store: MessageStore, *values: bytes, topic: bytes = b"T") -> StagedPart:
    staging_id = store.staging.begin()
    store.staging.append(staging_id, run_of(*values, topic=topic), len(values))
    return store.staging.seal(staging_id)


def path_of(batch: StagedPart) -> str:
    return f"{STAGING_DIR}/{batch.staging_id}"


class TestVerification:
    @pytest.mark.parametrize(
        "change",
        [{"record_count": 1}, {"record_count": 3}, {"size": 10}, {"checksum": 1}, {"size": 0}],
    )
    def test_what_was_promised_must_be_there(self, change: dict[str, int]) -> None:
        disk = new_disk()
        store = open_small(disk)
        batch = staged(store, b"a", b"b")
        with pytest.raises(StagingRefused):
            store.publish_now([batch._replace(**change)])
        assert store.log_range == (0, 0)
        assert store.publish_now([batch]).ok

    def test_every_damaged_bit_is_found(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        batch = staged(store, b"body")
        good = disk.content(path_of(batch))
        for bit in range(0, 8 * len(good), 7):
            disk.overwrite(path_of(batch), good)
            disk.flip(path_of(batch), bit)
            with pytest.raises(StagingRefused):
                store.publish_now([batch])
        for size in range(len(good)):
            disk.overwrite(path_of(batch), good[:size])
            with pytest.raises(StagingRefused):
                store.publish_now([batch])
        assert store.log_range == (0, 0)
        disk.overwrite(path_of(batch), good)
        assert store.publish_now([batch]).ok

    def test_a_wrong_record_count(self) -> None:
        """The count is the writer's word; the group counts for itself."""
        store = open_small(new_disk())
        staging_id = store.staging.begin()
        store.staging.append(staging_id, run_of(b"a", b"b"), 5)
        batch = store.staging.seal(staging_id)
        result = store.publish_now([batch])
        assert not result.ok or result.message_count == 2
        assert bodies(store, "T") in ([], [b"a", b"b"])

    def test_nothing_is_locked_or_mapped_after_a_refusal(self) -> None:
        disk = new_disk()
        store = open_small(disk)
        batch = staged(store, b"a")
        with pytest.raises(StagingRefused):
            store.publish_now([batch, batch._replace(staging_id="0" * 32)])
        assert disk.file_node(path_of(batch)) not in disk.mapped
        store.close()
