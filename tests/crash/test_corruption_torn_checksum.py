"""R03: a torn record that lost its checksum property must not pass for a record without one.

Our records carry a whole-record checksum, Apache's need not. When a crash takes the sector with the
properties and the name of the checksum property, what is left looks like a record of Apache's with
a good body. Two rules tell them apart: zeros do not belong there, and a log that is ours from its
first record on says so in its state.
"""

from __future__ import annotations

import dataclasses

import pytest

from broker_core.codec.records.host_address import encode_host
from broker_core.codec.records.message_record import MessageRecord, encode_record
from broker_core.config import StoreConfig
from broker_core.errors import CorruptStore
from broker_core.protocol_codes import PutStatus
from broker_core.storage.staging.staging_area import encode_template
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message, message_batch
from tests.crash.corruption import Described
from tests.fakes.disk_nodes import SECTOR_SIZE
from tests.fakes.simulated_disk import SimulatedCrash, SimulatedDisk

pytestmark = pytest.mark.crash

CONFIG = StoreConfig(
    commit_log_file_size=16 << 10,
    consume_queue_file_size=2000,
    index_hash_slots=8,
    index_entries_max=16,
    message_size_max=8 << 10,
)
PLAIN = dataclasses.replace(CONFIG, append_record_crc=False)
LOG_FILE = f"commitlog/{0:020d}"
CHECKSUM_NAME = b"__CRC32#"


def open_store(disk: SimulatedDisk, config: StoreConfig = CONFIG) -> MessageStore:
    return MessageStore.open(disk, config, clock=disk.clock)


def put_two(disk: SimulatedDisk, padding: int) -> None:
    """The second record ends at a place that `padding` moves."""
    store = open_store(disk)
    store.put_now(Message("orders", b"first"))
    store.append(Message("orders", b"second", properties={"text": "v" * padding}))


def crashed_in_last_sync(padding: int) -> SimulatedDisk:
    whole = SimulatedDisk()
    put_two(whole, padding)
    syncs = [op.number for op in whole.operations() if (op.method, op.path) == ("sync", LOG_FILE)]
    disk = SimulatedDisk(crash_at=syncs[-1])
    with pytest.raises(SimulatedCrash):
        put_two(disk, padding)
    return disk


def test_every_torn_state_of_a_record_with_long_properties(summary_lines: list[str]) -> None:
    states = kept = 0
    # Every place of the checksum property relative to the end of a sector.
    for padding in range(900, 900 + SECTOR_SIZE, 9):
        disk = crashed_in_last_sync(padding)
        for state in disk.crash_states(limit=40):
            with Described(f"padding {padding}: {state.describe()}"):
                store = open_store(disk.reboot(state))
                found = store.get("orders", 0, 0).messages()
                assert [message.body for message in found] in ([b"first"], [b"first", b"second"])
                if len(found) == 2:
                    assert found[1].properties == {"text": "v" * padding}
                    kept += 1
            states += 1
    assert 0 < kept < states
    summary_lines.append(
        f"R03 torn checksums   {states} crash states, {kept} with the record, 0 bad"
    )


def test_damage_to_the_name_of_the_checksum_is_damage() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put_now(Message("orders", b"body", properties={"color": "green"}))
    store.close()
    content = disk.content(LOG_FILE)
    damaged = content.replace(CHECKSUM_NAME, b"grown-up").replace(b"green", b"brown")
    disk.overwrite(LOG_FILE, damaged)
    store = open_store(disk)
    with pytest.raises(CorruptStore, match="checksum property is damaged") as caught:
        store.get("orders", 0, 0)
    assert caught.value.path == LOG_FILE
    assert disk.content(LOG_FILE) == damaged


def plain_record(store_position: int, queue_offset: int) -> bytes:
    """As another broker writes it."""
    record = MessageRecord(
        "orders", 0, b"by another broker", b"color\x01green\x02",
        queue_offset=queue_offset, physical_offset=store_position, store_timestamp=1,
    )  # fmt: skip
    return encode_record(record, append_crc=False)


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "crashed"])
def test_records_of_another_broker_are_taken_over(killed: bool) -> None:
    """Written behind our clean stop, by a broker that stopped cleanly or crashed."""
    disk = SimulatedDisk()
    store = open_store(disk)
    store.put_now(Message("orders", b"ours"))
    end = store.log_range[1]
    store.close()
    record = plain_record(end, 1)
    content = disk.content(LOG_FILE)
    disk.overwrite(LOG_FILE, content[:end] + record + content[end + len(record) :])
    if killed:
        disk.put("abort", b"")
    for body in (b"and ours again", b"and again"):
        store = open_store(disk)
        store.put_now(Message("orders", body))
        store.close()
    bodies = [message.body for message in open_store(disk).get("orders", 0, 0).messages()]
    assert bodies == [b"ours", b"by another broker", b"and ours again", b"and again"]


def test_the_checksum_can_be_switched_off_and_on() -> None:
    disk = SimulatedDisk()
    for config, body in ((CONFIG, b"with"), (PLAIN, b"without"), (CONFIG, b"with again")):
        store = open_store(disk, config)
        store.put_now(Message("orders", body))
        store.close()
    store = open_store(disk.kill())
    found = store.get("orders", 0, 0).messages()
    assert [message.body for message in found] == [b"with", b"without", b"with again"]


def test_no_batch_or_run_brings_a_record_without_checksum() -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    message = Message("orders", b"body")
    batch = message_batch(message, (b"orders", 0), store_host(), 1, append_crc=False)
    assert store.append_batch(batch).ok
    refused = store.append_group([encode_template(batch)])
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    store.flush()
    store.close()
    assert disk.content(LOG_FILE).count(CHECKSUM_NAME) == 1
    assert open_store(disk).offsets("orders", 0) == (0, 1)


def store_host() -> bytes:
    return encode_host((CONFIG.store_host, CONFIG.store_port))
