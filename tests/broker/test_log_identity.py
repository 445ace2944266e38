"""The name of a log, which its copies share, and when its epoch is another one."""

from __future__ import annotations

import pytest

from broker_core.broker.log_identity import IDENTITY_FILE, LogIdentity
from broker_core.errors import StoreUnusable
from broker_core.storage.json_table import JsonTable
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


@pytest.mark.parametrize(("is_confirmed", "epoch"), [(True, "5"), (False, "5/7")])
def test_a_slave_has_the_name_of_its_master_for_ever(is_confirmed: bool, epoch: str) -> None:
    place = Place("second")
    place.opened().adopt("first", "5", is_confirmed)
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
    identity.adopt("first", "5/7", False)
    assert (identity.store_id, identity.epoch) == ("first", "5/7")
    # A master of Apache says nothing.
    identity.adopt("", "", False)
    assert identity.store_id == "first"


def test_impossible_content_is_named() -> None:
    place = Place("first")
    JsonTable(place.disk, IDENTITY_FILE).save({"storeId": 3})
    with pytest.raises(StoreUnusable, match="logIdentity"):
        place.opened()


def test_a_slave_that_was_not_told_gives_no_name() -> None:
    disk, following = SimulatedDisk(), True
    identity = LogIdentity(JsonTable(disk, IDENTITY_FILE), "own", lambda: 1, lambda: following)
    assert (identity.store_id, identity.epoch) == ("", "")
    identity.adopt("first", "5", True)
    assert (identity.store_id, identity.epoch) == ("first", "5")
    identity = LogIdentity(JsonTable(SimulatedDisk(), IDENTITY_FILE), "own", lambda: 1)
    assert (identity.store_id, identity.epoch) == ("own", "1")
