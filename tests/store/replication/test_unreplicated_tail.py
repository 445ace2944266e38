"""A SYNC_MASTER that starts again shows what its slaves had, and the rest when they have it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from broker_core.protocol_codes import (
    BrokerRole,
    FlushDiskType,
    GetStatus,
    RequestCode,
    ResponseCode,
)
from broker_core.replication.confirmed_note import (
    CONFIRMED_FILE,
)
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.broker.running_broker import Asker
from tests.patient_client import patient_client
from tests.replication.running_pair import (
    config_of,
    make_topic,
    name_server,
    on_loop,
    pair,
    put,
    running,
    same_log,
    until,
)
from tests.store.replication.test_store_replication import Gate
from tests.store.small_store import bodies, new_disk, numbered, open_small, run_of

TAG_A = 65  # Java's hash of "A"


# What is remembered


# What readers of a store see


class Everything:
    """A filter that takes all."""

    cost = 1

    def accepts(self, property_text: bytes, /) -> bool:
        return True


def held(count: int = 9, shown: int = 4) -> tuple[MessageStore, Gate, list[int]]:
    """A store of `count` messages whose slaves had `shown` of them; the ends of the records."""
    disk = new_disk()
    store = open_small(disk)
    ends = []
    for body in numbered(count, size=200):
        ends.append(store.append(Message("T", body, tags="A", keys="K")).end_position)
    store.append(Message("OWN", b"x"))
    store.flush()
    store.close()
    store = open_small(disk, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    gate = Gate(store)
    gate.confirmed._position = ends[shown - 1] + 3  # inside of the next record
    store.replication.require_replicas(gate, 3_000)
    store.replication.hide_tail(gate.confirmed.position, ("OWN",))
    return store, gate, ends


def test_every_way_to_read_ends_there() -> None:
    store, gate, ends = held()
    with contextlib.closing(store):
        assert store.offsets("T", 0) == (0, 4)
        assert store.durable_offset("T", 0) == 4
        assert store.offset_by_time("T", 0, 1 << 62) == 4
        assert store.reads.local_range("d", "T", 0).max_offset == 4
        assert len(bodies(store, "T")) == 4
        assert len(store.units("T", 0, 1, 9)) == 3 and not store.units("T", 0, 4, 9)
        result = store.get("T", 0, 2, 32, tag_codes=[TAG_A])
        assert (result.next_offset, result.max_offset) == (4, 4)
        result = store.get("T", 0, 0, 32, record_filter=Everything())
        assert (result.message_count, result.next_offset) == (4, 4)
        for offset in range(4, 10):
            # A consumer may have read so far before a power cut: it waits and is not moved back.
            result = store.get("T", 0, offset)
            assert (result.status, result.next_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, offset)
        assert store.get("T", 0, 10).status is GetStatus.OFFSET_OVERFLOW_BADLY
        assert store.record_at(ends[2]) is not None
        assert store.record_at(ends[3]) is None
        with pytest.raises(ValueError, match="not all readable"):
            store.read_columns("T", 0, 0, 5, 1)
        # The broker itself knows all of it.
        assert store.offsets("OWN", 0) == (0, 1)
        assert store.record_at(ends[-1]) is not None
        assert store.next_offset("T", 0) == store.replication.queue_end("T", 0) == 9
        assert len(store.query("T", "K")) == 9
        assert store.replication.visible_position() == gate.confirmed.position


def test_the_tail_is_shown_when_the_slaves_have_all_of_it() -> None:
    store, gate, _ = held()
    arrivals: list[tuple[bytes, int, int]] = []
    with contextlib.closing(store):
        store.on_arrival(lambda *arrival: arrivals.append(arrival))
        new = store.append(Message("T", b"new"))
        store.flush()
        end = store.dispatched_position
        gate.reach(end - 1)
        assert store.offsets("T", 0) == (0, 4)
        assert not arrivals
        gate.reach(end)
        assert store.offsets("T", 0) == (0, 9)
        assert arrivals == [(b"T", 0, 9)]
        gate.reach(new.end_position)
        assert store.offsets("T", 0) == (0, 10)
        assert store.replication.visible_position() == new.end_position


def test_a_group_is_hidden_as_a_whole() -> None:
    disk = new_disk()
    store = open_small(disk)
    first = store.append_group([run_of(*numbered(5, size=100))])
    second = store.append_group([run_of(*numbered(20, size=100, first=5))])
    assert second.ok
    store.flush()
    store.close()
    for position in range(first.position, second.end_position + 1, 53):
        store = open_small(disk)
        gate = Gate(store)
        gate.confirmed._position = position
        store.replication.require_replicas(gate, 3_000)
        store.replication.hide_tail(position)
        shown = 5 * (position >= first.end_position) + 20 * (position >= second.end_position)
        assert store.offsets("T", 0)[1] == shown
        store.close()


# Whole brokers


@pytest.mark.parametrize("flush", FlushDiskType)
def test_a_restarted_master_waits_for_its_slave(tmp_path: Path, flush: FlushDiskType) -> None:
    @on_loop
    async def scenario() -> None:
        settings = {"store": {"flush_disk_type": flush}}
        async with name_server() as names, contextlib.AsyncExitStack() as stack:
            of_master = config_of(tmp_path / "m", BrokerRole.SYNC_MASTER, 0, names, **settings)
            of_slave = config_of(tmp_path / "s", BrokerRole.SLAVE, 1, names, **settings)
            client = patient_client()
            stack.push_async_callback(client.close)
            async with running(of_master) as master:
                make_topic(master)
                async with running(of_slave):
                    await until(lambda: master.role.status()["slaves"])
                    asker = Asker(master, client)
                    for _ in range(5):
                        assert (await asker.send("T", b"safe")).code == ResponseCode.SUCCESS
                await until(lambda: not master.role.status()["slaves"])
                for _ in range(7):
                    code = (await asker.send("T", b"alone")).code
                    assert code == ResponseCode.SLAVE_NOT_AVAILABLE
                assert master.context.store.offsets("T", 0)[1] == 5
            for _ in range(2):
                async with running(of_master) as master:
                    assert master.context.store.offsets("T", 0)[1] == 5
                    status = master.role.status()
                    assert status["visible_position"] < status["log_end"]
                    asker = Asker(master, client)
                    answer = await asker.pull(offset=5)
                    assert answer.code != ResponseCode.SUCCESS
                    assert int(answer.ext["nextBeginOffset"]) == 5
                    # A consumer that has read more at the slave has lost nothing.
                    ends = (await asker.ask(RequestCode.TOPIC_ENDS, topic="T")).ext
                    assert (ends["ends"].split(",")[0], ends.get("slave")) == ("5", "1")
            async with running(of_master) as master, running(of_slave) as slave:
                await until(lambda: master.context.store.offsets("T", 0)[1] == 12)
                await same_log(master, slave)
                asker = Asker(master, client)
                ends = (await asker.ask(RequestCode.TOPIC_ENDS, topic="T")).ext
                assert (ends["ends"].split(",")[0], ends.get("slave")) == ("12", None)
                assert (await Asker(master, client).send("T", b"safe")).code == ResponseCode.SUCCESS
            # A master that waits for no slave shows everything and stores no note.
            free = config_of(tmp_path / "m", BrokerRole.ASYNC_MASTER, 0, names, **settings)
            async with running(free) as master:
                await Asker(master, client).send("T", b"free")
                await until(lambda: master.context.store.offsets("T", 0)[1] == 14)
            async with running(of_master) as master:
                assert master.context.store.offsets("T", 0)[1] == 14

    scenario()


@on_loop
async def test_a_master_that_became_a_slave_shows_no_more_than_before(tmp_path: Path) -> None:
    """Only this broker has the end of its log, and the next master may never see it."""
    config = config_of(tmp_path, BrokerRole.SYNC_MASTER, 0, "")
    async with running(config) as master:
        make_topic(master)
        put(master, 4)
        assert master.context.store.offsets("T", 0) == (0, 0)
    for role in (BrokerRole.SLAVE, BrokerRole.SYNC_MASTER):
        async with running(config.with_role(role, int(role is BrokerRole.SLAVE))) as broker:
            assert broker.context.store.offsets("T", 0) == (0, 0), role
            assert broker.context.store.replication.queue_end("T", 0) == 2
    # A master that does not wait for slaves shows its whole log.
    async with running(config.with_role(BrokerRole.ASYNC_MASTER, 0)) as master:
        assert master.context.store.offsets("T", 0) == (0, 2)


@on_loop
async def test_a_slave_shows_what_its_new_master_has_too(tmp_path: Path) -> None:
    async with pair(tmp_path, BrokerRole.SYNC_MASTER) as (old, new):
        make_topic(old)
        await until(lambda: new.role.status()["is_copying"])
        for number in range(6):
            assert (await old.context.store.put(Message("T", b"%d" % number))).ok
        await same_log(old, new)
        await old.stop()
        # A power cut took the note.
        (tmp_path / "master" / CONFIRMED_FILE).unlink()
        await new.promote()
        await old.start()
        assert not old.config.is_master
        await until(lambda: old.context.store.offsets("T", 0) == (0, 6))
        assert new.context.store.offsets("T", 0) == (0, 6)
