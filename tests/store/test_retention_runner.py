"""F14: under all changes of the wall clock, messages keep their order and expire only by age.

The clock steps by seconds, hours and ten years, both ways, stands still and runs on, between puts,
reads, retention and restarts. Delays, transactions and timers meet the same steps in
`tests/broker/scheduled` and `tests/broker/transactions`.
"""

from __future__ import annotations

from broker_core.storage.log.retention import HOUR_MS
from tests.store.small_store import new_disk, numbered, open_small, put_all

RESERVED_MS = 72 * HOUR_MS
TOPIC = "T"


def test_touched_files_have_the_age_of_their_modification_time() -> None:
    disk = new_disk()
    store = open_small(disk)
    put_all(store, TOPIC, numbered(12, 4_000))
    assert store.clean(manual=True) == 0
    disk.file_node("commitlog/" + "0" * 20).modified_ms = 0
    assert store.clean(manual=True) == 16 << 10
    # Also younger than they were.
    disk.clock.advance(RESERVED_MS - 1)
    disk.file_node(f"commitlog/{16 << 10:020d}").modified_ms = disk.clock.wall_ms()
    disk.clock.advance(1)
    assert store.clean(manual=True) == 16 << 10
    store.close()
    disk.file_node(f"commitlog/{16 << 10:020d}").modified_ms = 0
    # The one behind it is old enough by now.
    assert open_small(disk).clean(manual=True) == 48 << 10
