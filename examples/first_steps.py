"""The store example of the README: put a message, read it back."""

from __future__ import annotations

import tempfile

from broker_core import Message, MessageStore

with tempfile.TemporaryDirectory() as directory, MessageStore.open(directory) as store:
    result = store.put_now(Message("orders", b"hello", queue_id=0, tags="new", keys="k1"))
    print(result.status, result.queue_offset)  # durable when this returns

    for message in store.get("orders", 0, offset=0).messages():
        print(message.queue_offset, message.body, message.properties)
