"""Members of one group on simulated disks, moved by hand: for failures that need an exact order."""

from __future__ import annotations

import random

from broker_core.errors import LogsDiverged
from broker_core.protocol_codes import BrokerRole, FlushDiskType, PutStatus
from broker_core.store.writes.message import Message
from tests.fakes.manual_clock import ManualClock
from tests.replication.simulated_node import TOPIC, Link, Node


class Group:
    """`a` is the first master and waits for one slave; what was acknowledged is remembered."""

    def __init__(self, members: int, flush: FlushDiskType = FlushDiskType.SYNC_FLUSH) -> None:
        clock, rng = ManualClock(), random.Random(1)
        roles = [BrokerRole.SYNC_MASTER] + [BrokerRole.SLAVE] * (members - 1)
        self.nodes = [
            Node(name, number, clock, rng, role=role, flush=flush, in_sync_replicas=2)
            for number, (name, role) in enumerate(zip("abcd", roles, strict=False))
        ]
        for node in self.nodes:
            node.start(self.masters())
        self.acked: list[bytes] = []
        self.refused: list[bytes] = []
        for node in self.nodes[1:]:
            self.copy(self.nodes[0], node)

    def masters(self) -> list[Node]:
        """Those that take messages now."""
        return [node for node in self.nodes if node.is_master]

    def send(self, node: Node, *bodies: bytes) -> None:
        """Append; the answers come when slaves report."""
        assert node.store is not None
        for body in bodies:

            def answered(status: PutStatus, body: bytes = body) -> None:
                (self.acked if status is PutStatus.PUT_OK else self.refused).append(body)

            node.store.when_acknowledged(node.store.append(Message(TOPIC, body)), answered)
        node.worker.run_all()

    def copy(self, master: Node, slave: Node, *, reports: bool = True) -> None:
        """Until the slave has everything; without `reports` the master gets no report."""
        for _ in range(500):
            link = slave.link
            if link is None or link.master is not master:
                slave.link = link = Link(master, slave)
            try:
                self._exchange(link, reports=reports or not link.follower.is_streaming)
            except LogsDiverged as error:
                link.end()
                slave.cut(error, [master])
                continue
            is_same = slave.log.end == master.log.end and slave.log.is_settled
            if link.follower.is_streaming and is_same and not (link.to_master and reports):
                return
        raise AssertionError(f"{slave.describe()} did not catch up with {master.describe()}")

    def _exchange(self, link: Link, *, reports: bool) -> None:
        slave, master = link.slave, link.master
        link.leader.pump()
        data = bytes(link.wire.waiting)
        link.wire.waiting.clear()
        if data:
            link.to_master += link.follower.receive(memoryview(data), slave.now)
        slave.worker.run_all()
        link.to_master += link.follower.report(slave.now)
        if link.to_master and reports:
            told = bytes(link.to_master)
            link.to_master.clear()
            link.leader.data_received(told)
        master.worker.run_all()

    def cut_off(self, node: Node) -> None:
        """Disconnected from all other nodes."""
        for other in self.nodes:
            if other.link is not None and node in (other, other.link.master):
                other.link.end()

    def kill(self, node: Node, *, power: bool = False) -> None:
        """Without a word; with `power`, what was not synced is gone as well."""
        self.cut_off(node)
        if power:
            node.lose_power()
        else:
            node.be_killed()
        node.stop_serving()

    def promote(self, node: Node) -> None:
        """Promote the node with the longest log, as an operator would; the others become slaves."""
        self.cut_off(node)
        node.promote()

    def step_down(self, node: Node) -> None:
        """A master that finds a newer one: it stops, and starts as a slave."""
        assert node.store is not None
        node.store.close()
        node.stop_serving()
        node.start(self.masters())
        assert not node.is_master

    def check(self, master: Node) -> None:
        """All nodes have the same log, with everything that was acknowledged, once."""
        for node in self.nodes:
            assert node.bytes_from(0) == master.bytes_from(0), f"{node.name} has another log"
            assert node.bodies() == master.bodies(), f"readers of {node.name} see something else"
        found = master.bodies()
        assert len(found) == len(set(found)), "a message is there twice"
        lost = set(self.acked) - set(found)
        assert not lost, f"acknowledged and gone: {sorted(lost)}"
