"""RocketMQ's checkpoint page on disk."""

from __future__ import annotations

from broker_core.codec.records.checkpoint_page import CheckpointPage, decode_checkpoint
from broker_core.storage.state.checkpoint import CHECKPOINT_FILE, save_page
from tests.store.small_store import new_disk


class TestCheckpointPage:
    def test_one_page_of_apache(self) -> None:
        disk = new_disk()
        page = CheckpointPage(1700000000123, 1700000000123, 0, 0, 4231)
        save_page(disk, page)
        data = disk.content(CHECKPOINT_FILE)
        assert len(data) == 4096
        assert data[:40].hex() == "0000018bcfe5687b" * 2 + "00" * 16 + "0000000000001087"
        assert not any(data[40:])
        assert disk.durable_content(CHECKPOINT_FILE) == data
        newer = page._replace(index_msg_timestamp=5)
        save_page(disk, newer)
        assert decode_checkpoint(disk.durable_content(CHECKPOINT_FILE)) == newer

    def test_short_and_long_pages_are_replaced(self) -> None:
        for content in (b"\1" * 10, bytes(9000)):
            disk = new_disk()
            disk.put(CHECKPOINT_FILE, content)
            page = CheckpointPage(1, 2, 3, 4, 5)
            save_page(disk, page)
            data = disk.content(CHECKPOINT_FILE)
            assert (len(data), decode_checkpoint(data)) == (4096, page)
