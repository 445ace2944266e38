"""RocketMQ's `checkpoint` page: the times from which its own recovery would start.

Our recovery does not use it; an Apache broker that opens the directory does. So it is written only
after the queue and index files that it covers were synced.
"""

from __future__ import annotations

from broker_core.codec.records.checkpoint_page import (
    PAGE_SIZE,
    CheckpointPage,
    encode_checkpoint,
)
from broker_core.storage.files.file_system import FileSystem

CHECKPOINT_FILE = "checkpoint"


def save_page(file_system: FileSystem, page: CheckpointPage) -> None:
    """Write the page in place, because Apache maps this file."""
    try:
        file = file_system.create(CHECKPOINT_FILE)
        created = True
    except FileExistsError:
        file = file_system.open(CHECKPOINT_FILE)
        created = False
    try:
        if file.size > PAGE_SIZE:
            file.resize(PAGE_SIZE)
        file.write(0, encode_checkpoint(page))
        file.sync()
    finally:
        file.close()
    if created:
        file_system.sync_dir("")
