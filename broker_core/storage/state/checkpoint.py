"""RocketMQ's `checkpoint` page: the times from which its own recovery would start.

Our recovery does not use it; an Apache broker that opens the directory does. So it is written only
after the queue and index files that it covers were synced.
"""

from __future__ import annotations

from broker_core.codec.records.checkpoint_page import (
    PAGE_SIZE,
    CheckpointPage,
    decode_checkpoint,
    encode_checkpoint,
)
from broker_core.errors import MalformedRecord
from broker_core.storage.files.atomic_file import read_file
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


def load_page(file_system: FileSystem) -> CheckpointPage:
    """The page, or zeros when it is missing or too short."""
    data = read_file(file_system, CHECKPOINT_FILE)
    if data is None:
        return CheckpointPage()
    try:
        return decode_checkpoint(data)
    except MalformedRecord:
        return CheckpointPage()
