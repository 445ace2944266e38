"""`EmbeddedCluster`: several masters with their slaves, each in a process of its own.

    with EmbeddedCluster(masters=2, slaves_per_master=1, replication="sync") as cluster:
        ...  # connect clients to cluster.name_server
        cluster.kill("broker-a:0")

RocketMQ's four modes of deployment are four calls: one master; several masters; several masters
with slaves that copy later; the same with slaves that every send waits for. The processes and the
temporary directory are gone at the end, also when the owner is killed. Not for use from several
threads at once.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from broker_core.broker.replication.persisted_roles import kept_master, member_id
from broker_core.broker.settings.unknown_properties import refuse_unknown
from broker_core.client.admin.admin import Admin
from broker_core.client.admin.replication import (
    Promotion,
    out_of_sync,
    promote,
    replication_members,
)
from broker_core.client.blocking.admin import SyncAdmin
from broker_core.embedded.cluster_node import NAME_SERVER, STORE_DIR, ClusterNode
from broker_core.embedded.directory_removal import remove_tree
from broker_core.embedded.held_ports import HeldPorts
from broker_core.embedded.standalone_server import HOST, STANDALONE_PROPERTIES
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument, RmqError
from broker_core.notebook.actions import ClusterActions
from broker_core.notebook.topic_counts import topic_counts
from broker_core.protocol_codes import BrokerRole
from broker_core.runtime.clock import Clock, SystemClock, sleep

MASTERS_MAX: Final = 26
SLAVES_MAX: Final = 8
# Slaves and clients learn of a master through its registration.
REGISTER_PERIOD_MS: Final = 2_000
_LOOK_S: Final = 0.05
_MASTER_ROLES: Final = {"async": "ASYNC_MASTER", "sync": "SYNC_MASTER"}
_FLUSHES: Final = {"async": "ASYNC_FLUSH", "sync": "SYNC_FLUSH"}


class EmbeddedCluster(ClusterActions):
    """A name server, masters and slaves in processes of their own, for notebooks and tests.

    Starts with `start` or `with`; a stopped one may be started again.

    `replication` is "async" or "sync" and matters with slaves: whether a send waits until a slave
    has it. `flush` is the same for the disk. `directory` keeps the stores; without it they are gone
    at the end. `topics` maps names to numbers of queues on each master. `properties` are settings
    of every broker under Apache's names.
    """

    def __init__(
        self,
        *,
        masters: int = 1,
        slaves_per_master: int = 0,
        replication: str = "async",
        flush: str = "async",
        directory: str | os.PathLike[str] | None = None,
        topics: Mapping[str, int] | None = None,
        properties: Mapping[str, str] | None = None,
        name_server_port: int = 0,
        start_timeout_s: float = 120.0,
        clock: Clock | None = None,
    ) -> None:
        _check_count("masters", masters, 1, MASTERS_MAX)
        _check_count("slaves_per_master", slaves_per_master, 0, SLAVES_MAX)
        _check_choice("replication", replication, _MASTER_ROLES)
        _check_choice("flush", flush, _FLUSHES)
        if replication == "sync" and not slaves_per_master:
            raise InvalidArgument(
                "replication is 'sync' and slaves_per_master is 0: no slave could confirm a send; "
                "give at least 1 slave, or replication='async'"
            )
        self._counts = (masters, slaves_per_master)
        self._topics = topic_counts(topics)
        refuse_unknown(properties or {}, "properties")
        self._properties = {
            **STANDALONE_PROPERTIES,
            "registerNameServerPeriod": str(REGISTER_PERIOD_MS),
            "flushDiskType": _FLUSHES[flush],
            "slaveReadEnable": "true",
            **{str(key): str(value) for key, value in (properties or {}).items()},
        }
        self._master_role = _MASTER_ROLES[replication]
        self._kept = Path(directory).absolute() if directory is not None else None
        self._name_server_port = name_server_port
        self._start_timeout_s = start_timeout_s
        self._clock: Clock = clock or SystemClock()
        self._held = _Held()
        # Called when the object is garbage, and at the end of the interpreter.
        self._last_resort = weakref.finalize(self, _Held.release, self._held)

    def __enter__(self) -> EmbeddedCluster:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # IPython looks for it in the class that has `__repr__`.
    _repr_pretty_ = ClusterActions._repr_pretty_

    def __repr__(self) -> str:
        running = [name for name, node in self._held.nodes.items() if node.is_running]
        return f"<EmbeddedCluster {', '.join(running) or 'not running'}>"

    # State

    @property
    def name_server(self) -> str:
        """`127.0.0.1:port`: what clients are configured with."""
        return self.node(NAME_SERVER).address

    @property
    def nodes(self) -> tuple[ClusterNode, ...]:
        """The brokers: the first master of each name, followed by its slaves."""
        return tuple(node for name, node in self._held.nodes.items() if name != NAME_SERVER)

    def node(self, name: str | ClusterNode) -> ClusterNode:
        """A member by its name: `broker-a:0` is the first master, `broker-a:1` its slave."""
        if isinstance(name, ClusterNode):
            return name
        if not self._held.nodes:
            raise EmbeddedBrokerFailed("the cluster was not started; use `with` or start()")
        found = self._held.nodes.get(name)
        if found is None:
            known = ", ".join(self._held.nodes)
            raise InvalidArgument(f"no node is called {name!r:.80}: there are {known}")
        return found

    # Actions

    def start(self) -> EmbeddedCluster:
        """Start what does not run, and wait until clients can be served.

        Raises `EmbeddedBrokerFailed` with the end of the log of the node that failed.
        """
        if not self._held.nodes:
            self._held.nodes.update((node.name, node) for node in self._planned())
        try:
            self._give_roles()
            # Slaves ask the name server for their master.
            self._start([self.node(NAME_SERVER)])
            self._start([node for node in self.nodes if node.is_master])
            self._start([node for node in self.nodes if not node.is_master])
            self._make_topics()
            self.wait_in_sync()
        except BaseException:
            self._held.release()
            raise
        return self

    def stop(self) -> None:
        """End every process cleanly and remove what is temporary. Safe to call twice."""
        self._held.release()

    def kill(self, node: str | ClusterNode) -> ClusterNode:
        """End a member as a crash would; its store stays for `restart`."""
        found = self.node(node)
        found.kill()
        return found

    def restart(self, node: str | ClusterNode) -> ClusterNode:
        """Stop a member if it runs, and start it again on the same store and ports."""
        found = self.node(node)
        found.stop()
        self._start([found])
        return found

    def wait_in_sync(self, timeout_s: float | None = None) -> None:
        """Wait until every running slave copies from its master and has what it has.

        Raises `EmbeddedBrokerFailed` when that does not happen in time, with the reason, and at
        once when one of the processes ends.
        """
        deadline = self._clock.monotonic() + (timeout_s or self._start_timeout_s)
        running = [node for node in self.nodes if node.is_running]
        with SyncAdmin(self.name_server) as admin:
            for name in sorted({node.broker_name for node in running}):
                while problem := admin.call(self._not_in_sync(admin.asynchronous, name)):
                    ended = [node.name for node in running if not node.is_running]
                    if ended:
                        problem = f"{', '.join(ended)} has ended"
                    if ended or self._clock.monotonic() >= deadline:
                        raise EmbeddedBrokerFailed(
                            f"the slaves of {name} do not copy from it: {problem}; each node "
                            f"logs to server.log in its folder of {running[0].directory.parent}"
                        )

    async def _not_in_sync(self, admin: Admin, name: str) -> str:
        wanted = sum(node.is_running for node in self.nodes if node.broker_name == name) - 1
        try:
            members = await replication_members(admin, name)
        except RmqError as error:
            problem = str(error) or type(error).__name__
        else:
            problem = out_of_sync(members, wanted)
        if problem:
            await sleep(_LOOK_S)
        return problem

    def promote(self, node: str | ClusterNode, *, force: bool = False) -> Promotion:
        """Make a slave the master of its name, now and at its next starts.

        Raises `PromotionRefused` while the master runs or when another slave has more; `force`
        promotes anyway. The old master follows the new one when it is started again.
        """
        found = self.node(node)
        role = BrokerRole(self._master_role)
        with SyncAdmin(self.name_server) as admin:
            members = admin.call(replication_members(admin.asynchronous, found.broker_name))
            # The id of a former master differs from the one in its name.
            numbers = [item.broker_id for item in members if item.address == found.address]
            number = max(numbers, default=found.broker_id)
            done = admin.call(
                promote(admin.asynchronous, found.broker_name, number, role=role, force=force)
            )
        found.set_properties(brokerRole=role.value, brokerId="0")
        return done

    # Inside

    def _start(self, nodes: list[ClusterNode]) -> None:
        """Start all at once and wait; they start in parallel."""
        begun = [node for node in nodes if not node.is_running]
        for node in begun:
            node.kill()
            node.begin()
        for node in begun:
            node.wait_ready(self._clock, self._start_timeout_s)

    def _planned(self) -> Iterator[ClusterNode]:
        masters, slaves = self._counts
        members = [(m, s) for m in range(masters) for s in range(slaves + 1)]
        hold = self._held.ports.hold
        address = f"{HOST}:{hold(self._name_server_port)}"
        yield self._node(NAME_SERVER, {"listen": address})
        for master, number in members:
            name = f"broker-{chr(ord('a') + master)}"
            yield self._node(
                f"{name}:{number}",
                {
                    **self._properties,
                    "namesrvAddr": address,
                    "brokerName": name,
                    "listenPort": str(hold()),
                    "haListenPort": str(hold()),
                },
            )

    def _give_roles(self) -> None:
        """Set the role of each member for its next start; one may have been promoted before."""
        slaves = self._counts[1]
        for name in {node.broker_name: None for node in self.nodes}:
            # The directory may have more members than are started now.
            found = {n: self._path(f"{name}:{n}") / STORE_DIR for n in range(SLAVES_MAX + 1)}
            master = kept_master({n: str(path) for n, path in found.items() if path.is_dir()})
            if master > slaves:
                raise InvalidArgument(
                    f"slaves_per_master is {slaves}, and {name}:{master} was promoted: it is the "
                    f"master that has all messages; give at least {master}"
                )
            for number in range(slaves + 1):
                broker_id = member_id(number, master)
                role = "SLAVE" if broker_id else self._master_role
                self.node(f"{name}:{number}").set_properties(
                    brokerRole=role, brokerId=str(broker_id)
                )

    def _node(self, name: str, properties: Mapping[str, str]) -> ClusterNode:
        return ClusterNode(name, self._path(name), properties, is_temporary=self._kept is None)

    def _path(self, name: str) -> Path:
        return self._directory() / name.replace(":", "-")

    def _directory(self) -> Path:
        if self._kept is not None:
            return self._kept
        if self._held.directory is None:
            self._held.directory = Path(tempfile.mkdtemp(prefix="rmq-cluster-"))
        return self._held.directory

    def _make_topics(self) -> None:
        if not self._topics:
            return
        with SyncAdmin(self.name_server) as admin:
            admin.create_topics(self._topics)


class _Held:
    """Resources that end with an `EmbeddedCluster`; a forked child does not own them."""

    def __init__(self) -> None:
        self.nodes: dict[str, ClusterNode] = {}
        self.directory: Path | None = None
        self.ports = HeldPorts()
        self._owner_id = os.getpid()

    def release(self) -> None:
        """End the processes, slaves first, and remove what is temporary."""
        if os.getpid() != self._owner_id:
            self.ports.release()
            return
        for node in reversed(self.nodes.values()):
            node.stop()
        self.ports.release()
        if self.directory is not None:
            remove_tree(self.directory)
            self.directory = None
            self.nodes.clear()


def _check_count(name: str, count: object, least: int, most: int) -> None:
    if type(count) is not int or not least <= count <= most:
        raise InvalidArgument(f"{name} cannot be {count!r:.40}: give {least} to {most}")


def _check_choice(name: str, value: object, choices: Mapping[str, str]) -> None:
    if value not in choices:
        raise InvalidArgument(f"{name} cannot be {value!r:.40}: give {' or '.join(choices)}")
