"""Write buffers of the transient pool."""

from __future__ import annotations

from broker_core.storage.log.write_buffer_pool import WriteBufferPool

SIZE = 4096


class TestPool:
    def test_buffers_are_lent_and_come_back(self) -> None:
        pool = WriteBufferPool(2, SIZE)
        first, second = pool.borrow(), pool.borrow()
        assert first is not None
        assert second is not None
        assert (pool.borrow(), pool.available) == (None, 0)
        first.give_back()
        assert pool.available == 1
        assert pool.borrow() is first
        assert len(second.view) == SIZE
