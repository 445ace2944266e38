"""Replication of the log: a master feeds its slaves, a slave follows its master.

Owns the epoch history of the store, the replication port and the link to the master. Built on the
open store before anything can be appended, because a master's run begins with a new epoch.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable
from typing import Any, Final

from broker_core.access.credentials import read_secret_file
from broker_core.broker.security.broker_security import ReplicationTls, inner_client
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.topic_name import (
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from broker_core.errors import (
    InvalidConfig,
    LogsDiverged,
    PromotionRefused,
    ReplicationRefused,
    RmqError,
)
from broker_core.protocol_codes import BrokerRole, FlushDiskType, RequestCode, ResponseCode
from broker_core.remoting.client import parse_address
from broker_core.replication.confirmed_note import (
    ConfirmedNote,
    confirmed_at_start,
    load_confirmed,
)
from broker_core.replication.epoch_file import load_history, save_history
from broker_core.replication.follower_session import FollowerSettings
from broker_core.replication.ha_client import HaClient, MasterAddress
from broker_core.replication.ha_server import HaServer
from broker_core.replication.handshake import Identity
from broker_core.replication.leader_session import LeaderSettings
from broker_core.replication.log_epochs import Epoch, EpochHistory, LastRole
from broker_core.replication.message_counts import MessageCounts
from broker_core.replication.replica_set import DUPLICATE_ID, Replica, ReplicaSet, ReplicaSettings
from broker_core.runtime.cancelled import end_tasks
from broker_core.runtime.clock import Clock, sleep
from broker_core.storage.files.file_system import FileSystem
from broker_core.store.message_store import MessageStore
from broker_core.store.replication.log_cut import ASIDE_DIR
from broker_core.store.running_flags import Running

_log = logging.getLogger(__name__)

_ASK_TIMEOUT_MS: Final = 3_000
_NOTE_SYNC_S: Final = 0.25
# Topics that the broker itself reads, besides those with the prefix of system topics. They are
# never hidden: the broker must see its own records before a slave has them.
_OWN_TOPICS: Final = (SCHEDULE_TOPIC, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC)


class ReplicationRole:
    """`start` it once the broker serves, `stop` it before the store closes."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        file_system: FileSystem,
        store: MessageStore,
        *,
        stepped_down: int = 0,
        expected_epoch: int = 0,
        diverged: Callable[[LogsDiverged], object] = lambda error: None,
        newer_seen: Callable[[int], object] = lambda epoch: None,
        id_taken: Callable[[], object] = lambda: None,
        tls: ReplicationTls | None = None,
    ) -> None:
        """`expected_epoch`: the first epoch of a new term, which the other members were told of."""
        self._tls = tls or ReplicationTls()
        self._config = config
        self._clock = clock
        self._file_system = file_system
        self._store = store.replication
        self._topics = {topic for topic, _ in store.queues()}
        self._log = self._store.log
        self._key = _key(config)
        self._stepped_down = stepped_down
        self._diverged = diverged
        self._newer_seen = newer_seen
        self._id_taken = id_taken
        self._master_told: tuple[str, str] | None = None
        self._asking = inner_client(config)
        self._server: HaServer | None = None
        self._client: HaClient | None = None
        self._counts: MessageCounts | None = None
        self._note: ConfirmedNote | None = None
        self._note_task: asyncio.Task[None] | None = None
        self.history = load_history(file_system)
        self.replicas: ReplicaSet | None = None
        self.was_promoted = False
        """Whether this run as a master began on the log of a slave."""
        if config.is_master:
            self._begin_epoch(expected_epoch)
            self.replicas = self._replica_set()
        else:
            self._hide_tail(self._confirmed_before())

    @property
    def master_address(self) -> str | None:
        """Service address of a slave's master; None before a name server has reported it."""
        return None if self._master_told is None else self._master_told[0]

    @property
    def epoch(self) -> int:
        """Number of the epoch that a master has begun, or that a slave's log has reached.

        0 before there is any.
        """
        current = self.history.current
        if self._config.is_master:
            return 0 if current is None else current.number
        return self.history.reached(self._log.end)

    def master_is(self, address: str, ha_address: str) -> None:
        """Take the master's addresses from a name server."""
        told = (address, ha_address)
        if told != self._master_told:
            self._master_told = told
            if self._client is not None and not self._config.ha_master_address:
                self._client.reconnect()

    async def start(self, bound: socket.socket | None) -> None:
        """Serve slaves on the bound port, or follow the master."""
        if self._config.is_master:
            if bound is not None:
                await self._serve(bound)
            if self._note is not None:
                self._note_task = asyncio.ensure_future(self._sync_note(self._note))
        else:
            self._follow()

    async def stop(self) -> None:
        """Close the connections."""
        self._log.listeners.clear()
        if self._server is not None:
            await self._server.stop()
            self._server = None
        if self._client is not None:
            await self._client.stop()
            self._client = None
        await self._asking.close()
        if self._note_task is not None:
            await end_tasks((self._note_task,))
            self._note_task = None
        if self._note is not None:
            await asyncio.to_thread(self._note.sync)
            self._note.close()
            self._note = None

    def capabilities(self) -> dict[str, str]:
        """Fields of the answer to CAPABILITIES."""
        current = self.history.current
        return {
            "replicationOwner": "" if current is None else current.owner,
            "haHandshake": "1",
            "haAddress": self._config.ha_address,
            "replicationEpoch": str(self.epoch),
            "brokerRole": self._config.store.broker_role.value,
        }

    def status(self) -> dict[str, Any]:
        """Role, positions, and every connected slave or the link to the master."""
        log, role = self._log, self._config.store.broker_role
        found: dict[str, Any] = {
            "role": role.value,
            "broker_id": self._config.broker_id,
            "epoch": self.epoch,
            "log_start": log.start,
            "log_end": log.end,
            "safe_end": log.safe_end,
        }
        if self.replicas is not None:
            found["confirmed_position"] = self.replicas.confirmed.position
            found["waits_for_slaves"] = self._waits
            found["visible_position"] = self._store.visible_position()
            found["in_sync_replicas"] = self.replicas.in_sync_count()
            found["slaves"] = [self._slave_status(replica) for replica in self.replicas.replicas]
        if self._client is not None:
            client = self._client
            found["master"] = "" if client.master is None else str(client.master)
            found["is_copying"] = client.is_copying
            found["problem"] = "" if client.problem is None else str(client.problem)
            found["stepped_down"] = bool(self._stepped_down)
        found["saved_aside"] = self._file_system.list(ASIDE_DIR)
        return found

    def expect_epoch(self, epoch: int) -> int:
        """Note on a slave that a promotion is about to begin an epoch; the highest one it knows.

        From then on the slave follows no older master. A master only answers.
        """
        if not self._config.is_master and epoch > self.history.seen:
            self._save(self.history.heard_of(epoch))
            _log.info("a promotion begins epoch %d: this slave follows no older master", epoch)
            if self._client is not None:
                self._client.reconnect()
        return self.history.seen

    def check_promotion(self) -> None:
        """Raises `PromotionRefused` when this slave cannot become a master."""
        if self._has_nothing:
            raise PromotionRefused(
                "this slave has never copied anything from its master, which has all messages: "
                "promote another slave, or let this one copy first"
            )

    @property
    def _has_nothing(self) -> bool:
        return not self.history.epochs and self._log.end == 0

    # Master

    @property
    def _waits(self) -> bool:
        is_sync = self._config.store.broker_role is BrokerRole.SYNC_MASTER
        return is_sync and self._config.in_sync_replicas > 1

    def _begin_epoch(self, expected: int) -> None:
        """Make a new epoch durable before the first append of this run."""
        is_new_term = expected > 0
        promoted = is_new_term or self.history.role not in (LastRole.MASTER, LastRole.NONE)
        if promoted and self._has_nothing:
            raise InvalidConfig(
                "brokerRole",
                self._config.store.broker_role.value,
                "this slave has never copied anything from its master, which has all messages; "
                "start it as SLAVE, or empty its directory for a new broker",
            )
        end, confirmed = self._log.end, -1
        if self._waits:
            confirmed = self._confirmed_before()
        history = self.history.heard_of(expected - 1)
        begun = history.begin(uuid.uuid4().hex, end, new_term=is_new_term)
        self.history = begun._replace(confirmed=confirmed)
        save_history(self._file_system, self.history)
        if self._waits:
            self._note = ConfirmedNote(self._file_system, self.epoch, confirmed)
        self.was_promoted = promoted
        if promoted:
            _log.info("this broker is the master now, epoch %d", self.epoch)

    def _replica_set(self) -> ReplicaSet:
        config, store = self._config, self._store
        waits = self._waits
        settings = ReplicaSettings(
            config.in_sync_replicas if waits else 1,
            config.min_in_sync_replicas if waits else 1,
            config.ha_fall_behind_max,
            config.ha_slaves_max,
        )
        if not waits:
            return ReplicaSet(settings, lambda: self._log.end)
        replicas = ReplicaSet(
            settings,
            lambda: self._log.end,
            self.history.confirmed,
            on_confirmed=self._confirmed_moved,
            on_enough=lambda enough: store.set_running(Running.REPLICAS_MISSING, not enough),
        )
        store.require_replicas(replicas, config.slave_timeout_ms)
        self._hide_tail(self.history.confirmed)
        replicas.refresh()
        return replicas

    def _confirmed_before(self) -> int:
        return confirmed_at_start(self.history, load_confirmed(self._file_system), self._log.end)

    def _hide_tail(self, confirmed: int) -> None:
        """Hide the unreplicated tail of the log from readers: other brokers may never get it."""
        if confirmed < self._log.end:
            own = {t for t in self._topics if t.startswith(SYSTEM_TOPIC_PREFIX)}
            self._store.hide_tail(confirmed, own.union(_OWN_TOPICS))
            _log.info(
                "the log from %d to %d becomes visible to readers once another broker has it",
                confirmed,
                self._log.end,
            )

    def _confirmed_moved(self) -> None:
        """Persist the position before showing it: the next run must not show less than this one."""
        if self._note is not None and self.replicas is not None:
            self._note.write(self.replicas.confirmed.position)
        self._store.confirmed_moved()

    async def _sync_note(self, note: ConfirmedNote) -> None:
        while True:
            await sleep(_NOTE_SYNC_S)
            if note.is_unsynced:
                await asyncio.to_thread(note.sync)

    async def _serve(self, bound: socket.socket) -> None:
        assert self.replicas is not None
        config = self._config
        self._server = HaServer(
            self._log,
            self._identity(),
            self.history,
            self.replicas,
            LeaderSettings(
                config.ha_batch_size,
                config.ha_frame_size,
                config.ha_heartbeat_ms,
                config.ha_housekeeping_ms,
                self._key,
                config.store.broker_role is BrokerRole.SYNC_MASTER
                and config.store.flush_disk_type is not FlushDiskType.SYNC_FLUSH,
                needs_key=config.acl_enable and not config.ha_allow_without_key,
            ),
            self._clock,
            self._newer_seen,
            self._mark,
        )
        if config.ha_allow_without_key:
            _log.warning(
                "haAllowWithoutKey=true: every peer that reaches the replication port %s can copy "
                "the whole log and confirm messages",
                config.ha_address,
            )
        self._counts = MessageCounts(self._log.start, self._log.end, self._store.message_count)
        self._mark()
        await self._server.serve(bound, self._tls.server)
        self._log.listeners.append(self._server.wake)

    def _mark(self) -> None:
        if self._counts is not None:
            self._counts.mark(*self._store.appended)

    def _slave_status(self, replica: Replica) -> dict[str, Any]:
        identity, lag = replica.identity, max(self._log.end - replica.position, 0)
        self._mark()
        return {
            "address": replica.address,
            "broker_id": None if identity is None else identity.broker_id,
            "store_id": None if identity is None else identity.store_id,
            "position": replica.position,
            "sent": replica.sent,
            "lag_bytes": lag,
            "lag_messages": 0 if self._counts is None else self._counts.behind(replica.position),
            "in_sync": lag < self._config.ha_fall_behind_max,
        }

    # Slave

    def _follow(self) -> None:
        config = self._config
        # A slave that starts as a master is promoted, unless it had only stepped down.
        role = LastRole.STEPPED_DOWN if self._stepped_down else LastRole.SLAVE
        seen = max(self.history.seen, self._stepped_down)
        slave_id = config.broker_id if self._stepped_down else 0
        history = self.history._replace(role=role, seen=seen, slave_id=slave_id)
        if history != self.history:
            self._save(history)
        self._client = HaClient(
            self._log,
            self._identity(),
            lambda: self.history,
            FollowerSettings(False, config.ha_heartbeat_ms, config.ha_housekeeping_ms, self._key),
            self._clock,
            find_master=self._find_master,
            learn=self._learn,
            diverged=self._diverged,
            refused=self._refused,
            tls=self._tls.client,
        )
        self._log.listeners.append(self._client.changed)
        self._client.start()

    def _identity(self) -> Identity:
        config = self._config
        return Identity(
            config.cluster_name, config.broker_name, config.broker_id, self._log.store_id
        )

    def _refused(self, refusal: ReplicationRefused) -> None:
        # The id of a broker that has stepped down was chosen, not configured: it may be changed.
        if self._stepped_down and refusal.kind == DUPLICATE_ID:
            self._id_taken()

    def _learn(self, epochs: tuple[Epoch, ...]) -> None:
        """The master's log agrees with all of ours."""
        history = self.history.followed(epochs, self.history.seen)
        if history != self.history:
            self._save(history)
        self._store.show_tail()

    def _save(self, history: EpochHistory) -> None:
        save_history(self._file_system, history)
        self.history = history

    async def _find_master(self) -> MasterAddress | None:
        config, told = self._config, self._master_told
        classic = config.ha_classic_master
        if told is not None and not classic:
            asked = await self._is_classic(told[0])
            if asked is None and not config.ha_master_address:
                return None
            classic = bool(asked)
        address = config.ha_master_address or ("" if told is None else told[1])
        if not address:
            return None
        if classic and self.history.confirmed >= 0:
            # An Apache master does not compare the logs.
            self._save(self.history._replace(confirmed=-1))
            self._store.show_tail()
        return MasterAddress(*parse_address(address), classic)

    async def _is_classic(self, address: str) -> bool | None:
        """Whether the master is Apache's; None when it does not answer."""
        command = RemotingCommand(RequestCode.CAPABILITIES)
        try:
            answer = await self._asking.request(address, command, _ASK_TIMEOUT_MS)
        except (RmqError, asyncio.TimeoutError) as error:
            _log.debug("master %s did not answer: %s", address, error)
            return None
        if answer.code == ResponseCode.SUCCESS:
            return "haHandshake" not in answer.ext
        return True if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else None


def _key(config: BrokerConfig) -> bytes:
    if config.ha_auth_key_file:
        return read_secret_file(config.ha_auth_key_file, "haAuthKeyFile").encode()
    return config.ha_auth_key.encode()
