"""RocketMQ's checkpoint page on disk."""

from __future__ import annotations

from broker_core.codec.records.checkpoint_page import CheckpointPage
from broker_core.storage.state.checkpoint import CHECKPOINT_FILE, load_page, save_page
from tests.store.small_store import new_disk


class TestCheckpointPage:
    def test_one_page_of_apache(self) -> None:
        disk = new_disk()
        assert load_page(disk) == CheckpointPage()
        page = CheckpointPage(1700000000123, 1700000000123, 0, 0, 4231)
        save_page(disk, page)
        data = disk.content(CHECKPOINT_FILE)
        assert len(data) == 4096
        assert data[:40].hex() == "0000018bcfe5687b" * 2 + "00" * 16 + "0000000000001087"
        assert not any(data[40:])
        assert load_page(disk) == page
        save_page(disk, page._replace(index_msg_timestamp=5))
        assert len(disk.content(CHECKPOINT_FILE)) == 4096

    def test_missing_short_and_long_pages(self) -> None:
        disk = new_disk()
        disk.put(CHECKPOINT_FILE, b"\1" * 10)
        assert load_page(disk) == CheckpointPage()
        disk.put(CHECKPOINT_FILE, bytes(9000))
        save_page(disk, CheckpointPage())
        assert len(disk.content(CHECKPOINT_FILE)) == 4096
