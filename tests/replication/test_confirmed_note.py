"""The confirmed position on disk."""

from __future__ import annotations

import errno

from broker_core.replication.confirmed_note import (
    CONFIRMED_FILE,
    ConfirmedNote,
    confirmed_at_start,
    decode_confirmed,
    encode_confirmed,
    load_confirmed,
)
from broker_core.replication.epoch_file import decode_history, encode_history
from broker_core.replication.log_epochs import Epoch, EpochHistory, LastRole
from tests.store.small_store import new_disk

HISTORY = EpochHistory((Epoch(1, "a", 0), Epoch(2, "b", 500)), 2, LastRole.MASTER, 400)


def test_the_note_and_the_epoch_decide() -> None:
    assert confirmed_at_start(HISTORY, (2, 700), 1_000) == 700
    assert confirmed_at_start(HISTORY, (2, 700), 600) == 600, "the log has lost its end"
    assert confirmed_at_start(HISTORY, (1, 900), 1_000) == 400, "of an earlier run"
    assert confirmed_at_start(HISTORY, None, 1_000) == 400
    for everything in (
        EpochHistory(),
        HISTORY._replace(confirmed=-1),
        HISTORY.followed(HISTORY.epochs, 2),
    ):
        assert confirmed_at_start(everything, (2, 700), 1_000) == 1_000
    for role in (LastRole.SLAVE, LastRole.STEPPED_DOWN):
        history = HISTORY._replace(role=role)
        assert confirmed_at_start(history, (2, 700), 1_000) == 700


def test_formats() -> None:
    whole = encode_confirmed(7, 1 << 40)
    assert decode_confirmed(whole) == (7, 1 << 40)
    for place in range(len(whole)):
        broken = bytearray(whole)
        broken[place] ^= 1
        assert decode_confirmed(bytes(broken)) is None
        assert decode_confirmed(whole[:place]) is None
    assert decode_history(encode_history(HISTORY)) == HISTORY


def test_a_note_survives_a_kill_and_its_sync_a_power_cut() -> None:
    disk = new_disk()
    note = ConfirmedNote(disk, 3, 100)
    note.write(200)
    note.sync()
    assert not note.is_unsynced
    note.write(300)
    assert note.is_unsynced
    found = set()
    for state in list(disk.crash_states(limit=50)):
        found.add(load_confirmed(disk.reboot(state)))
    assert found == {(3, 200), (3, 300)}
    assert load_confirmed(disk.kill()) == (3, 300)


def test_a_note_that_cannot_be_written_is_given_up() -> None:
    disk = new_disk()
    note = ConfirmedNote(disk, 3, 100)
    disk.fail(disk.operation_count, errno.EIO, sticky=True, methods=("write",))
    note.write(200)
    note.write(300)
    note.sync()
    assert not note.is_unsynced
    assert disk.exists(CONFIRMED_FILE)
