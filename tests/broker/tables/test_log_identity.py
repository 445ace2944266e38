"""The identity of a log, which its copies share, and when its epoch changes."""

from __future__ import annotations

import pytest

from broker_core.broker.tables.log_identity import IDENTITY_FILE, LogIdentity
from broker_core.errors import StoreUnusable
from broker_core.protocol_codes import RunAnswer
from broker_core.replication.log_epochs import (
    EPOCHS_MAX,
    RUNS_NAMED,
    TERM,
    Epoch,
    EpochHistory,
    RunMark,
    parse_runs,
)
from broker_core.storage.files.json_table import JsonTable
from tests.fakes.simulated_disk import SimulatedDisk


class Place:
    """A disk with a store of its own id and epoch."""

    def __init__(self, own_id: str) -> None:
        self.disk = SimulatedDisk()
        self.own_id = own_id
        self.own_epoch = 1

    def opened(self) -> LogIdentity:
        return LogIdentity(JsonTable(self.disk, IDENTITY_FILE), self.own_id, lambda: self.own_epoch)


def test_a_master_is_what_its_store_is() -> None:
    place = Place("first")
    identity = place.opened()
    assert (identity.store_id, identity.epoch) == ("first", "1")
    place.own_epoch = 2
    assert identity.epoch == "2"
    identity.promoted(7)
    assert (identity.store_id, identity.epoch) == ("first", "2")


def test_a_slave_keeps_the_id_of_its_masters_log() -> None:
    epoch = "5/7"
    place = Place("second")
    place.opened().adopt("first", "5")
    # Its own store may have an accident: all of it comes from the master again.
    place.own_epoch = 3
    identity = place.opened()
    assert (identity.store_id, identity.epoch) == ("first", "5")
    identity.promoted(7)
    assert (identity.store_id, identity.epoch) == ("first", epoch)
    assert place.opened().epoch == epoch
    place.opened().promoted(8)
    assert place.opened().epoch == epoch
    # Now an accident of its own store is one.
    place.own_epoch = 4
    assert place.opened().epoch == f"{epoch}+4"


def test_an_old_master_takes_the_name_from_the_new_one() -> None:
    place = Place("first")
    identity = place.opened()
    identity.adopt("first", "5/7")
    assert (identity.store_id, identity.epoch) == ("first", "5/7")
    # A master of Apache says nothing.
    identity.adopt("", "")
    assert identity.store_id == "first"


def test_impossible_content_is_named() -> None:
    place = Place("first")
    JsonTable(place.disk, IDENTITY_FILE).save({"storeId": 3})
    with pytest.raises(StoreUnusable, match="logIdentity"):
        place.opened()


def test_a_slave_without_a_name_gives_none() -> None:
    disk, following = SimulatedDisk(), True
    identity = LogIdentity(JsonTable(disk, IDENTITY_FILE), "own", lambda: 1, lambda: following)
    assert (identity.store_id, identity.epoch) == ("", "")
    identity.adopt("first", "5")
    assert (identity.store_id, identity.epoch) == ("first", "5")
    identity = LogIdentity(JsonTable(SimulatedDisk(), IDENTITY_FILE), "own", lambda: 1)
    assert (identity.store_id, identity.epoch) == ("own", "1")


def test_the_flag_of_an_older_release_keeps_no_epoch() -> None:
    """It said that the slave had everything, and could be stale."""
    place = Place("second")
    JsonTable(place.disk, IDENTITY_FILE).save(
        {"storeId": "first", "epoch": "5", "confirmed": True, "since": -1}
    )
    identity = place.opened()
    identity.promoted(7)
    assert identity.epoch == "5/7"


def history_of(*epochs: tuple[int, str, int]) -> EpochHistory:
    return EpochHistory(tuple(Epoch(*epoch) for epoch in epochs))


@pytest.mark.parametrize(
    ("history", "end", "expected"),
    [
        (history_of((1, "a", 0)), 50, RunAnswer.HAS),
        (history_of((1, "a", 0)), 49, RunAnswer.LACKS),
        (history_of((1, "a", 0), (2, "b", 50)), 50, RunAnswer.HAS),
        # Cut, or a backup that was started again.
        (history_of((1, "a", 0), (2, "b", 49)), 90, RunAnswer.LACKS),
        (history_of((1, "other", 0)), 90, RunAnswer.LACKS),
        (history_of((3, "b", 0)), 90, RunAnswer.LACKS),
        (history_of(), 90, RunAnswer.LACKS),
    ],
)
def test_whether_a_log_has_a_run(history: EpochHistory, end: int, expected: RunAnswer) -> None:
    def identity(is_slave: bool) -> LogIdentity:
        table = JsonTable(SimulatedDisk(), IDENTITY_FILE)
        return LogIdentity(
            table, "own", lambda: 1, lambda: is_slave, history=lambda: history, log_end=lambda: end
        )

    run = "50.1.a"
    assert history_of((1, "a", 0)).run_at(50) == RunMark.parse(run)
    assert identity(is_slave=False).has_run(run) is expected
    # A master that hides its end, and a slave that has never heard of the run, leave it open.
    unsure = RunAnswer.HAS if expected is RunAnswer.HAS else RunAnswer.UNSURE
    assert identity(is_slave=False).has_run(run, is_sure=False) is unsure
    is_on_its_way = history == history_of((1, "a", 0))
    assert identity(is_slave=True).has_run(run) is (RunAnswer.HAS if is_on_its_way else unsure)
    assert identity(is_slave=False).has_run("nonsense") is RunAnswer.LACKS


def test_bytes_that_are_older_than_the_first_epoch() -> None:
    """A log that was taken over from another product."""
    adopted = history_of((TERM, "a", 100))
    assert adopted.run_at(80) == RunMark(80)
    assert adopted.has_run(RunMark(80), 200) is True
    assert history_of((TERM, "b", 70)).has_run(RunMark(80), 200) is False


def test_a_run_that_many_restarts_have_pushed_out() -> None:
    history = EpochHistory()
    for number in range(EPOCHS_MAX + 2):
        history = history.begin(f"owner{number}", number * 10)
    mark = RunMark(10, TERM, "owner0")
    assert mark.number < history.epochs[0].number
    assert history.has_run(mark, 1 << 30) is True
    assert RunMark.parse(str(mark)) == mark


@pytest.mark.parametrize(
    ("mine", "log_end", "expected"),
    [
        # A backup of the first run, which was started again.
        (history_of((1, "a", 0), (2, "other", 40)), 90, 40),
        # A copy of the second run that lacks its end.
        (history_of((1, "a", 0), (2, "b", 50), (3, "other", 60)), 90, 60),
        (history_of((1, "a", 0), (2, "b", 50)), 55, 55),
        # A slave had more of the first run than its master kept.
        (history_of((1, "a", 0), (2, "other", 70)), 90, 50),
        (history_of((1, "other", 0)), 90, None),
        (history_of(), 90, None),
    ],
)
def test_where_a_log_begins_to_differ_from_one_that_was_read(
    mine: EpochHistory, log_end: int, expected: int | None
) -> None:
    assert Place("own").opened().runs_until(10) == ""
    table = JsonTable(SimulatedDisk(), IDENTITY_FILE)
    theirs = history_of((1, "a", 0), (2, "b", 50), (3, "c", 80))
    read = LogIdentity(table, "own", lambda: 1, history=lambda: theirs, log_end=lambda: 100)
    assert (run := read.run_at(75)) == "75.2.b"
    assert (runs := read.runs_until(75)) == "1.a.0,2.b.50"
    here = LogIdentity(table, "own", lambda: 1, history=lambda: mine, log_end=lambda: log_end)
    assert here.agreed_end(run, runs) == expected
    for nonsense in ("", ",", "1.a", "1.a.0,x", "1.a.0,2.b.-1", "9" * 20 + ".a.0", "1.ü.0"):
        assert here.agreed_end(run, nonsense) is None
    assert here.agreed_end("nonsense", runs) is None


def test_the_latest_runs_are_named() -> None:
    history = EpochHistory()
    for number in range(20):
        history = history.begin(f"owner{number}", number * 10)
    runs = history.runs_until(1_000)
    assert [run.owner for run in runs] == [f"owner{n}" for n in range(20 - RUNS_NAMED, 20)]
    assert parse_runs(",".join(map(str, runs))) == runs
    assert parse_runs(",".join(map(str, history.epochs)))[:2] == history.epochs[:2]
