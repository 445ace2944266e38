"""One broker of the simulation: a real store on a simulated disk, real sessions, no sockets."""

from __future__ import annotations

import random
from typing import Any

from broker_core.broker.replication.master_discovery import is_newer
from broker_core.config import StoreConfig
from broker_core.errors import LogsDiverged
from broker_core.protocol_codes import BrokerRole, FlushDiskType, GetStatus
from broker_core.replication.confirmed_note import (
    ConfirmedNote,
    confirmed_at_start,
    load_confirmed,
)
from broker_core.replication.epoch_file import load_history, save_history
from broker_core.replication.follower_session import FollowerSession, FollowerSettings
from broker_core.replication.ha_server import HaServer, _SlaveConnection
from broker_core.replication.handshake import Identity
from broker_core.replication.leader_session import LeaderSettings
from broker_core.replication.log_epochs import Epoch, EpochHistory, LastRole
from broker_core.replication.replica_set import ReplicaSet, ReplicaSettings
from broker_core.store.message_store import MessageStore
from broker_core.store.replication.log_cut import ASIDE_DIR, save_and_cut
from tests.fakes.manual_clock import ManualClock
from tests.fakes.manual_worker import ManualWorker
from tests.fakes.simulated_disk import SimulatedDisk

SMALL: dict[str, Any] = {
    "commit_log_file_size": 2 << 10,
    "consume_queue_file_size": 20 * 20,
    "message_index_enable": False,
    "message_size_max": 1 << 10,
}
TOPIC = "T"
TIMEOUT_MS = 3_000


class Wire:
    """What a transport is to a server's connection: bytes that wait for the other side."""

    def __init__(self) -> None:
        self.waiting = bytearray()
        self.is_closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        """Never full."""

    def get_extra_info(self, name: str) -> tuple[str, int]:
        """Some address."""
        return "127.0.0.1", 1

    def write(self, data: bytes) -> None:
        """Towards the slave."""
        self.waiting += data

    def close(self) -> None:
        """After what was written."""
        self.is_closed = True

    abort = close


class Link:
    """A connection of a slave to a master."""

    def __init__(self, master: Node, slave: Node) -> None:
        self.master = master
        self.slave = slave
        self.wire = Wire()
        self.to_master = bytearray()
        assert master.server is not None
        self.leader = _SlaveConnection(master.server)
        self.leader.connection_made(self.wire)  # type: ignore[arg-type]
        self.follower = slave.new_session()
        self.to_master += self.follower.opening(slave.now)

    def end(self) -> None:
        """Reset: nothing that waits arrives."""
        self.slave.link = None
        self.leader.connection_lost(None)


class Node:
    """`up` while its store is open. Everything it does may end in a `SimulatedCrash`."""

    def __init__(
        self,
        name: str,
        number: int,
        clock: ManualClock,
        rng: random.Random,
        *,
        role: BrokerRole,
        flush: FlushDiskType,
        in_sync_replicas: int,
    ) -> None:
        self.name = name
        self.number = number
        self.clock = clock
        self.rng = rng
        self.wanted_role = role
        self.flush = flush
        self.in_sync_replicas = in_sync_replicas
        self.disk = SimulatedDisk(clock=clock, seed=number)
        self.store: MessageStore | None = None
        self.worker = ManualWorker()
        self.role = role
        self.history = EpochHistory()
        self.replicas: ReplicaSet | None = None
        self.server: HaServer | None = None
        self.link: Link | None = None
        self.is_down = True
        self.note: ConfirmedNote | None = None
        self.shown = 0
        """The most that slaves ever had of this log, or that it showed as a slave's."""
        self.seen_offset = 0
        """Where the queue ended when it was last looked at."""

    @property
    def now(self) -> float:
        """The node's clock."""
        return self.clock.monotonic()

    @property
    def is_master(self) -> bool:
        """Up, and takes puts."""
        return not self.is_down and self.role is not BrokerRole.SLAVE

    @property
    def log(self) -> Any:
        """The log of the open store."""
        assert self.store is not None
        return self.store.replication.log

    def start(self, masters: list[Node], expected: int = 0) -> None:
        """As `Broker.start`: look for a newer master, open, begin an epoch or follow."""
        self.is_down = False
        self.role = self.wanted_role
        history = load_history(self.disk)
        stepped_down = history.role is LastRole.STEPPED_DOWN
        if self.role is not BrokerRole.SLAVE:
            newer = [m.history.seen for m in masters if is_newer(m.history.seen, history)]
            stepped_down = stepped_down or bool(newer)
            if stepped_down:
                self.role = BrokerRole.SLAVE
                history = history._replace(seen=max((history.seen, *newer)))
        config = StoreConfig(broker_role=self.role, flush_disk_type=self.flush, **SMALL)
        self.store = MessageStore.open(self.disk, config, clock=self.clock)
        self.worker = ManualWorker()
        self.store.scheduler._flush_worker.exchange(self.worker)
        self.history = history
        if self.role is BrokerRole.SLAVE:
            wanted = LastRole.STEPPED_DOWN if stepped_down else LastRole.SLAVE
            self._save(history._replace(role=wanted))
        else:
            self.lead(expected)

    def lead(self, expected: int) -> None:
        """A new epoch, and a door for slaves."""
        if self.history.role is not LastRole.MASTER:
            self.shown = max(self.shown, self.log.end)
        self.begin_epoch(expected)
        settings = ReplicaSettings(self.in_sync_replicas)
        waits = self.in_sync_replicas > 1
        confirmed = self.history.confirmed if waits else None
        self.replicas = ReplicaSet(
            settings,
            lambda: self.log.end,
            confirmed,
            on_confirmed=self.confirmed_moved if waits else lambda: None,
        )
        assert self.store is not None
        if waits:
            self.note = ConfirmedNote(self.disk, self.history.seen, self.history.confirmed)
            self.store.replication.require_replicas(self.replicas, TIMEOUT_MS)
            self.store.replication.hide_tail(self.history.confirmed)
        self.server = HaServer(
            self.log,
            self.identity,
            self.history,
            self.replicas,
            LeaderSettings(classic_size=100, frame_size=300),
            self.clock,
        )

    def begin_epoch(self, expected: int) -> None:
        """Durable before the first append."""
        confirmed = -1
        if self.in_sync_replicas > 1:
            confirmed = confirmed_at_start(self.history, load_confirmed(self.disk), self.log.end)
        history = self.history.heard_of(expected - 1)
        owner = f"{self.rng.getrandbits(64):x}"
        begun = history.begin(owner, self.log.end, new_term=expected > 0)
        self._save(begun._replace(confirmed=confirmed))

    def confirmed_moved(self) -> None:
        """As `ReplicationRole` does."""
        assert self.store is not None
        assert self.replicas is not None
        assert self.note is not None
        self.shown = max(self.shown, self.replicas.confirmed.position)
        self.note.write(self.replicas.confirmed.position)
        self.store.replication.confirmed_moved()

    @property
    def identity(self) -> Identity:
        """Identity of this node in a handshake."""
        return Identity("C", "B", self.number + 1, self.log.store_id)

    def new_session(self) -> FollowerSession:
        """To a master."""
        nonce = self.rng.randbytes(16)
        return FollowerSession(
            self.log, self.identity, self.history, FollowerSettings(), nonce, self.now, self._learn
        )

    def stop_serving(self) -> None:
        """The process is gone; its connections are, too."""
        self.is_down = True
        self.store = None
        self.server = None
        self.replicas = None

    def lose_power(self) -> None:
        """What was not synced may be gone, sector by sector."""
        states = list(self.disk.crash_states(limit=24, rng=self.rng))
        self.disk._die()
        self.disk = self.disk.reboot(self.rng.choice(states))

    def be_killed(self) -> None:
        """The page cache stays."""
        self.disk = self.disk.kill()

    def cut(self, error: LogsDiverged, masters: list[Node]) -> None:
        """As `Broker._cut`."""
        assert self.store is not None
        numbering = self.store.replication.next_offsets_at(error.agreed)
        self.store.close()
        size = SMALL["commit_log_file_size"]
        save_and_cut(self.disk, size, error.agreed, error.end, numbering, 1)
        self.shown, self.seen_offset = min(self.shown, error.agreed), 0
        self.start(masters)

    def promote(self, expected: int = 0) -> None:
        """By a new configuration and a restart."""
        assert self.store is not None
        self.store.close()
        self._save(self.history._replace(role=LastRole.SLAVE))
        self.wanted_role = BrokerRole.SYNC_MASTER
        self.start([], expected)

    def become_slave(self) -> None:
        """By a new configuration and a restart."""
        assert self.store is not None
        self.store.close()
        self.wanted_role = BrokerRole.SLAVE
        self.stop_serving()
        self.start([])

    def outrank(self, expected: int) -> None:
        """As `Broker._outrank`: a new term, for another master to find."""
        assert self.store is not None
        self.store.close()
        self.stop_serving()
        self.start([], expected)

    def expect_epoch(self, epoch: int) -> None:
        """As `ReplicationRole.expect_epoch`."""
        if not self.is_master:
            self._save(self.history.heard_of(epoch))

    def has_all(self, end: int) -> bool:
        """Whether everything up to `end` is here, safe and visible."""
        assert self.store is not None
        visible = self.store.replication.visible_position()
        return self.log.end == end and self.log.is_settled and visible == end

    def describe(self) -> str:
        """For a violation."""
        if self.is_down or self.store is None:
            return f"{self.name} down"
        link = "" if self.link is None else f" link {self.link.follower.is_streaming}"
        return (
            f"{self.name} {self.role.value} end {self.log.end} safe {self.log.safe_end} seen "
            f"{self.store.dispatched_position} epochs {self.history.epochs[-2:]}{link}"
        )

    def bodies(self) -> list[bytes]:
        """Everything that readers see."""
        assert self.store is not None
        low, high = self.store.offsets(TOPIC, 0)
        found: list[bytes] = []
        while low < high:
            result = self.store.get(TOPIC, 0, low)
            assert result.status is GetStatus.FOUND, result
            found += [message.body for message in result.messages()]
            low = result.next_offset
        return found

    def bytes_from(self, start: int) -> bytes:
        """The raw log."""
        pieces = []
        while data := self.log.read(start, 1 << 20):
            pieces.append(data)
            start += len(data)
        return b"".join(pieces)

    def saved_aside(self) -> list[bytes]:
        """What cuts have taken away and kept."""
        return [self.disk.content(f"{ASIDE_DIR}/{n}") for n in self.disk.list(ASIDE_DIR)]

    def _learn(self, epochs: tuple[Epoch, ...]) -> None:
        self._save(self.history.followed(epochs, self.history.seen))

    def _save(self, history: EpochHistory) -> None:
        if history != load_history(self.disk):
            save_history(self.disk, history)
        self.history = history
