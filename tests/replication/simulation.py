"""A master, its slaves and a client in one thread: faults in an order that a seed decides.

Links deliver any number of bytes at a time and may be reset; disks sync when the schedule says so;
power is cut and processes are killed, also in the middle of an operation; slaves are promoted when
the master is down. At the end everything heals, and then: what was acknowledged is there, logs are
equal on their common range, readers saw nothing that was not confirmed.
"""

from __future__ import annotations

import enum
import functools
import random
from typing import NamedTuple

from broker_core.broker.replication.master_discovery import is_newer
from broker_core.errors import CorruptStore, LogsDiverged, RmqError, StoreUnusable
from broker_core.protocol_codes import BrokerRole, FlushDiskType, PutStatus
from broker_core.replication.epoch_file import load_history
from broker_core.replication.log_epochs import TERM, LastRole
from broker_core.store.writes.message import Message
from tests.fakes.manual_clock import ManualClock
from tests.fakes.simulated_disk import SimulatedCrash
from tests.replication.simulated_node import TOPIC, Link, Node


class Broken(enum.Enum):
    """The promises that are checked."""

    ACKED_LOST = "acknowledged messages are gone"
    NOT_SET_ASIDE = "acknowledged messages are in no log and in no file beside it"
    LOGS_DIFFER = "logs or queues are not the same"
    SHOWN_EARLY = "readers see what is not confirmed"
    TAKEN_BACK = "readers no longer see what they have seen"
    TWICE = "a message is there twice"
    TWO_MASTERS = "two masters go on side by side"
    SPLICED = "a slave's log goes on in the middle of a record"
    NOT_TOGETHER = "the group does not come together again"
    UNUSABLE = "a store cannot be opened or used"


class Violation(AssertionError):
    """An invariant does not hold; the text has the seed."""

    def __init__(self, broken: Broken, text: str) -> None:
        super().__init__(f"{broken.value}: {text}")
        self.broken = broken


class Plan(NamedTuple):
    """What a seed stands for."""

    is_sync: bool
    flush: FlushDiskType
    slaves: int
    power_cuts: bool
    promotions: bool
    steps: int
    sync_weight: int
    fault_weight: float

    @property
    def keeps_acked(self) -> bool:
        """Whether the mode promises that no acknowledged message is lost under these faults."""
        return self.is_sync or not self.promotions


def plan_of(seed: int, steps: int) -> Plan:
    """Modes and faults; power is cut only where the mode covers that."""
    rng = random.Random(f"plan {seed}")
    is_sync = rng.random() < 0.6
    flush = rng.choice((FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH))
    return Plan(
        is_sync,
        flush,
        rng.choice((1, 2)),
        flush is FlushDiskType.SYNC_FLUSH,
        rng.random() < 0.7,
        steps,
        rng.choice((8, 30, 60)),
        rng.choice((0.3, 1.0)),
    )


class World:
    """One run."""

    def __init__(self, seed: int, steps: int = 400) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.plan = plan_of(seed, steps)
        self.clock = ManualClock()
        self.trace: list[str] = []
        self.sent = 0
        self.acked: set[bytes] = set()
        self.held: dict[str, int] = {}
        role = BrokerRole.SYNC_MASTER if self.plan.is_sync else BrokerRole.ASYNC_MASTER
        self.nodes = [
            Node(
                f"n{number}",
                number,
                self.clock,
                self.rng,
                role=role if number == 0 else BrokerRole.SLAVE,
                flush=self.plan.flush,
                in_sync_replicas=2 if self.plan.is_sync else 1,
            )
            for number in range(self.plan.slaves + 1)
        ]

    def run(self) -> None:
        """Start, faults, healing, checks."""
        for node in self.nodes:
            self._do(node, lambda node=node: node.start(self._masters()))
        faults = self.plan.fault_weight
        actions = (
            (self._send, 30),
            (self._pump, 25),
            (self._deliver_to_slave, 30),
            (self._deliver_to_master, 20),
            (self._sync, self.plan.sync_weight),
            (self._connect, 24),
            (self._reset, 2 * faults),
            (self._crash, 2 * faults),
            (self._crash_soon, 1 * faults),
            (self._restart, 8),
            (self._promote, 8),
            (self._guard, 2),
            (self._pass_time, 4),
        )
        kinds, weights = [a for a, _ in actions], [w for _, w in actions]
        for _ in range(self.plan.steps):
            action = self.rng.choices(kinds, weights)[0]
            acked = len(self.acked)
            action()
            self._check_visible()
            # The moment after an acknowledgement is when most is promised.
            if len(self.acked) > acked and self.rng.random() < 0.3 * faults:
                self._blackout()
        self._heal()
        self._check_end()

    # Actions

    def _send(self) -> None:
        for node in self._masters():
            body = b"%d-%d" % (self.seed, self.sent)
            body = body.ljust(self.rng.randint(20, 400), b".")
            self.sent += 1

            def answered(status: PutStatus, body: bytes = body) -> None:
                if status is PutStatus.PUT_OK:
                    self.acked.add(body)

            def send(node: Node = node, body: bytes = body) -> None:
                assert node.store is not None
                result = node.store.append(Message(TOPIC, body))
                node.store.when_acknowledged(result, answered)

            self._do(node, send)

    def _pump(self) -> None:
        for link in self._some_links():
            if len(link.wire.waiting) < 4_000:
                self._do(link.master, link.leader.pump)

    def _deliver_to_slave(self) -> None:
        for link in self._some_links():
            count = self.rng.randint(1, 1_000)
            data = bytes(link.wire.waiting[:count])
            del link.wire.waiting[:count]
            if data:
                self._follow(
                    link,
                    lambda link=link, data=data: link.follower.receive(
                        memoryview(data), link.slave.now
                    ),
                )
            if link.wire.is_closed and not link.wire.waiting and link.slave.link is link:
                link.end()

    def _deliver_to_master(self) -> None:
        for link in self._some_links():
            count = self.rng.randint(1, 400)
            data = bytes(link.to_master[:count])
            del link.to_master[:count]
            if data and not link.wire.is_closed:
                self._do(link.master, lambda link=link, data=data: link.leader.data_received(data))

    def _sync(self) -> None:
        node = self.rng.choice(self.nodes)
        if node.is_down:
            return
        if self.plan.flush is FlushDiskType.ASYNC_FLUSH:
            self._do(node, lambda: node.store is not None and node.store.scheduler.tick())
        if node.worker.waiting:
            self._do(node, node.worker.run_next)
        link = node.link
        if link is not None and not node.is_down:
            self._follow(link, lambda: link.follower.report(node.now))
        if node.is_master and node.note is not None:
            self._do(node, node.note.sync)

    def _connect(self) -> None:
        node = self.rng.choice(self.nodes)
        masters = [m for m in self._masters() if m is not node]
        if node.is_down or node.is_master or node.link is not None or not masters:
            return
        master = self.rng.choice(masters)
        if node.log.is_settled:
            self._do(node, lambda: setattr(node, "link", Link(master, node)))

    def _reset(self) -> None:
        for link in self._some_links():
            self.trace.append(f"reset {link.slave.name}")
            link.end()

    def _crash(self) -> None:
        node = self.rng.choice(self.nodes)
        if not node.is_down:
            self._down(node)

    def _blackout(self) -> None:
        """All at once; the master takes longest to come back, or is replaced."""
        for node in self.nodes:
            if not node.is_down:
                if node.is_master:
                    self.held[node.name] = 60
                self._down(node)

    def _crash_soon(self) -> None:
        node = self.rng.choice(self.nodes)
        if not node.is_down and self.plan.power_cuts:
            node.disk.crash_at(node.disk.operation_count + self.rng.randint(1, 25))

    def _restart(self) -> None:
        node = self.rng.choice(self.nodes)
        self.held = {name: left - 8 for name, left in self.held.items() if left > 8}
        if node.is_down and node.name not in self.held:
            self.trace.append(f"start {node.name}")
            self._do(node, lambda: node.start(self._masters()))

    def _promote(self) -> None:
        """The operator's rule: the master is down, all slaves are up, the most advanced one.

        Without it, nothing is promised about acknowledged messages, but one master remains.
        """
        slaves = [n for n in self.nodes if not n.is_down and not n.is_master]
        wanted = self.plan.slaves if self.plan.is_sync else 1
        if not self.plan.promotions or self._masters() or len(slaves) < wanted:
            return
        best = max(slaves, key=_progress)
        if not best.history.until(best.log.end).epochs:
            # It has copied nothing; such a slave is refused as a master.
            return
        self.trace.append(f"promote {best.name}")
        self._unlink(best)
        self._make_master(best)
        for node in self.nodes:
            # The configuration of the others is changed when they are found to be down.
            if node is not best and not node.is_down:
                node.wanted_role = BrokerRole.SLAVE

    def _make_master(self, node: Node) -> None:
        epoch = self._expected_epoch(node)
        self._do(node, lambda: node.promote(epoch))
        if node.is_down and load_history(node.disk).role is not LastRole.MASTER:
            # It failed before its epoch began: the broker goes on as a slave.
            node.wanted_role = BrokerRole.SLAVE

    def _expected_epoch(self, promoted: Node) -> int:
        """As `master_discovery.expected_epoch`: all that are up know it before it begins."""
        others = [n for n in self.nodes if n is not promoted and not n.is_down]
        highest = max([promoted.history.seen, *(n.history.seen for n in others)])
        epoch = (highest // TERM + 1) * TERM
        for node in others:
            self._do(node, lambda node=node: node.expect_epoch(epoch))
            self._unlink(node)
        return epoch

    def _guard(self) -> None:
        """A running master finds a newer one."""
        for node in self._masters():
            newer = [m for m in self._masters() if is_newer(m.history.seen, node.history)]
            if newer and node.store is not None:
                self.trace.append(f"{node.name} steps down")
                self._unlink(node)

                def restart(node: Node = node) -> None:
                    assert node.store is not None
                    node.store.close()
                    node.stop_serving()
                    node.start(self._masters())

                self._do(node, restart)
        for node in self._masters():
            others = [m for m in self._masters() if m is not node]
            if any(_outranks(node, other) for other in others):
                self.trace.append(f"{node.name} begins a new term")
                self._unlink(node)
                epoch = self._expected_epoch(node)
                self._do(node, functools.partial(node.outrank, epoch))

    def _pass_time(self) -> None:
        self.clock.advance(self.rng.choice((10, 200, 1_000, 6_000)))
        for link in self._links():
            self._do(link.master, link.leader.tick)
            if link.slave.link is link:
                self._follow(link, lambda link=link: link.follower.tick(link.slave.now))
        for node in self.nodes:
            if not node.is_down and node.store is not None:
                self._do(node, node.store.scheduler.tick)

    # Inside

    def _masters(self) -> list[Node]:
        return [node for node in self.nodes if node.is_master]

    def _links(self) -> list[Link]:
        return [node.link for node in self.nodes if node.link is not None]

    def _some_links(self) -> list[Link]:
        links = self._links()
        return [self.rng.choice(links)] if links else []

    def _follow(self, link: Link, step: object) -> None:
        """A step of the slave's side; its session ends when it raises."""
        node = link.slave
        try:
            data = step()  # type: ignore[operator]
        except LogsDiverged as error:
            self.trace.append(f"cut {node.name} to {error.agreed}")
            link.end()
            self._do(node, functools.partial(node.cut, error, self._masters()))
        except RmqError as error:
            self.trace.append(f"{node.name}: {error}")
            link.end()
        except SimulatedCrash:
            self._down(node)
        else:
            if data and node.link is link:
                link.to_master += data

    def _do(self, node: Node, step: object) -> None:
        """A step of one node, which a power cut may end."""
        if node.is_down and node.store is not None:
            return
        try:
            step()  # type: ignore[operator]
        except SimulatedCrash:
            self._down(node)
        except (CorruptStore, StoreUnusable) as error:
            self._violated(Broken.UNUSABLE, f"{node.name}: {error!r}")

    def _down(self, node: Node) -> None:
        self.trace.append(f"crash {node.name}")
        self._unlink(node)
        if node.disk.crashed or (self.plan.power_cuts and self.rng.random() < 0.6):
            node.lose_power()
        else:
            node.be_killed()
        node.stop_serving()

    def _unlink(self, node: Node) -> None:
        for link in self._links():
            if node in (link.master, link.slave):
                link.end()

    def _heal(self) -> None:
        """All nodes return; no more faults."""
        for node in self.nodes:
            node.disk._crash_at = 1 << 62
        for _ in range(3_000):
            for node in self.nodes:
                if node.is_down:
                    self._do(node, lambda node=node: node.start(self._masters()))
            if not any(node.is_down for node in self.nodes):
                self._repeat_promotion()
            if not self._masters():
                self._lead_again()
            self._guard()
            for node in self.nodes:
                if not node.is_down and node.worker.waiting:
                    self._do(node, node.worker.run_all)
            for action in (
                self._connect, self._pump, self._deliver_to_slave, self._deliver_to_master,
                self._sync, self._pump, self._deliver_to_slave, self._deliver_to_master,
            ):  # fmt: skip
                action()
            if self._is_healed():
                return
            self.clock.advance(10)
        state = [node.describe() for node in self.nodes]
        broken = Broken.NOT_TOGETHER
        if len(self._masters()) > 1:
            broken = Broken.TWO_MASTERS
        elif any("damage at position" in line for line in self.trace[-50:]):
            broken = Broken.SPLICED
        self._violated(broken, f"{state}")

    def _lead_again(self) -> None:
        """There is no master: the operator promotes, as in `_promote`."""
        slaves = [n for n in self.nodes if not n.is_down]
        best = max(slaves, key=_progress)
        self._unlink(best)
        self._make_master(best)

    def _repeat_promotion(self) -> None:
        """A promotion was announced and did not take place: the operator stops the older master."""
        masters = self._masters()
        newest = max((node.history.seen for node in self.nodes if not node.is_down), default=0)
        if len(masters) == 1 and newest > masters[0].history.seen:
            (old,) = masters
            self.trace.append(f"{old.name} is started as a slave")
            self._unlink(old)
            self._do(old, old.become_slave)

    def _is_healed(self) -> bool:
        masters = self._masters()
        if len(masters) != 1 or any(node.is_down for node in self.nodes):
            return False
        end = masters[0].log.end
        return all(node.has_all(end) for node in self.nodes) and all(
            node is masters[0] or (node.link is not None and node.link.follower.is_streaming)
            for node in self.nodes
        )

    def _check_visible(self) -> None:
        if not self.plan.is_sync:
            return
        for node in self._masters():
            assert node.store is not None
            visible = node.store.replication.visible_position()
            if visible > node.shown:
                self._violated(Broken.SHOWN_EARLY, f"{node.name} shows what no slave has")
            end = node.store.offsets(TOPIC, 0)[1]
            unit = node.store.units(TOPIC, 0, end - 1, 1) if end else []
            if unit and unit[0][0] + unit[0][1] > visible:
                self._violated(
                    Broken.SHOWN_EARLY, f"readers of {node.name} see more than is visible"
                )
            # A killed process must not take back what readers have seen; a power cut may, until
            # a slave is there again.
            if not self.plan.power_cuts and end < node.seen_offset:
                self._violated(
                    Broken.TAKEN_BACK,
                    f"the queue of {node.name} ends at {end} after {node.seen_offset}",
                )
            node.seen_offset = end

    def _check_end(self) -> None:
        (master,) = self._masters()
        for node in self.nodes:
            if node is master:
                continue
            start = max(node.log.start, master.log.start)
            if node.bytes_from(start) != master.bytes_from(start):
                self._violated(Broken.LOGS_DIFFER, f"{node.name} and {master.name} differ")
        found = master.bodies()
        if len(set(found)) != len(found):
            self._violated(Broken.TWICE, "a message is there twice")
        for node in self.nodes:
            if node.bodies() != found:
                self._violated(Broken.LOGS_DIFFER, f"readers of {node.name} see something else")
        lost = self.acked - set(found)
        if self.plan.keeps_acked and lost:
            self._violated(
                Broken.ACKED_LOST, f"{len(lost)} acknowledged messages are gone: {sorted(lost)[:3]}"
            )
        nowhere = self.nowhere(lost)
        if nowhere:
            self._violated(Broken.NOT_SET_ASIDE, f"{len(nowhere)} messages: {nowhere[:3]}")

    def nowhere(self, lost: set[bytes]) -> list[bytes]:
        """Those of the messages that no cut has saved."""
        aside = b"".join(data for node in self.nodes for data in node.saved_aside())
        return [body for body in sorted(lost) if body not in aside]

    def _violated(self, broken: Broken, text: str) -> None:
        last = "; ".join(self.trace[-12:])
        raise Violation(broken, f"seed {self.seed}, {self.plan}: {text}. Last: {last}")


def _outranks(node: Node, other: Node) -> bool:
    current = other.history.current
    return current is not None and node.history.outranks(other.history.seen, current.owner)


def _progress(node: Node) -> tuple[int, int]:
    """Which log is the newest: by its last epoch, then by its length."""
    current = node.history.until(node.log.end).current
    return (0 if current is None else current.number, node.log.end)


def run_seed(seed: int, steps: int = 400) -> World:
    """One run; raises `Violation`."""
    world = World(seed, steps)
    world.run()
    return world
