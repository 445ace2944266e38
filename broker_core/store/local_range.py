"""What a reader in another process of this host must know to read the files of a store itself.

The bound comes from the owner of the store, because files say nothing about what may be seen:
`max_offset` is what readers may see, and everything below it is in the files when this returns.
"""

from __future__ import annotations

from broker_core.codec.local_range import LocalRange, StoreLayout
from broker_core.store.disk_errors import names_disk_errors
from broker_core.store.message_store import MessageStore


@names_disk_errors
def local_range(store: MessageStore, directory: str, topic: str, queue_id: int) -> LocalRange:
    """Have the units of a queue written (not synced), and say what may be read."""
    parts = store._open_parts()
    queue = parts.queues.find(topic.encode("utf-8", "surrogatepass"), queue_id)
    low, high = (0, 0)
    if queue is not None:
        queue.write_out()
        low, high = queue.min_offset, parts.reader.end_of(queue)
    layout = StoreLayout(
        directory,
        store.store_id,
        store.epoch,
        parts.flush.state.boot_id,
        parts.log.segments.size,
        parts.config.consume_queue_file_size,
        parts.log.check_level,
    )
    return LocalRange(layout, parts.log.start, low, high)
