"""Cuts the power before every file operation of a workload and opens every disk that may result.

`CrashEnumerator` watches a run. For each moment at which the disk differs from the one before it
takes the possible outcomes of a power cut, and the one outcome of a kill, opens a store on each and
lets the checker judge. Some of these recoveries are themselves cut at every operation
(`_RecoveryCuts`). What was done is counted in a `Tally`.

About four of ten disks equal one that was opened shortly before, since neighbouring moments share
most outcomes. What opening gives is a function of the disk, so it is remembered and judged against
the history of the new moment. One of `again_every` is opened all the same and must give the same.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import random
import struct
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from types import CodeType

from broker_core.config import StoreConfig
from broker_core.errors import CorruptStore, RmqError
from broker_core.store.message_store import MessageStore
from broker_core.store.writes.message import Message
from tests.crash.checker import check
from tests.crash.history import GROUP_TOPIC, Append, Frozen, Placed, Sent
from tests.crash.store_dump import Dump, dump_store
from tests.crash.store_run import StoreRun
from tests.fakes.crash_states import CrashPoint
from tests.fakes.disk_nodes import DirectoryNode
from tests.fakes.simulated_disk import OperationSite, SimulatedDisk, path_class

DERIVED = ("consumequeue", "index", "dispatch_checkpoint", "checkpoint")
VIOLATIONS_KEPT_MAX = 20
# Disks repeat within a few moments.
DUMPS_KEPT_MAX = 512
# Errors that a broken store may raise; any other ends the run with its own traceback.
FAILURES = (
    RmqError,
    OSError,
    AssertionError,
    ArithmeticError,
    AttributeError,
    BufferError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)

TraceSite = tuple[str, str, CodeType]


@dataclasses.dataclass
class Tally:
    """What a run did and found; tallies of several runs add up."""

    states: int = 0
    kills: int = 0
    recovery_states: int = 0
    again: int = 0
    """Second openings: repeated recoveries, rebuilds from the bare log, life after recovery."""
    known: int = 0
    """States of disks that had been opened before, judged by what was found then."""
    points: int = 0
    seconds: float = 0.0
    sites: set[OperationSite] = dataclasses.field(default_factory=set)
    sites_hit: set[OperationSite] = dataclasses.field(default_factory=set)
    violations: list[str] = dataclasses.field(default_factory=list)
    violation_count: int = 0

    def add(self, other: Tally) -> None:
        """Sum up."""
        for field in dataclasses.fields(self):
            mine, its = getattr(self, field.name), getattr(other, field.name)
            setattr(self, field.name, mine | its if isinstance(mine, set) else mine + its)
        del self.violations[VIOLATIONS_KEPT_MAX:]

    def found(self, where: str, broken: list[str]) -> None:
        """Note broken invariants."""
        if broken:
            self.violation_count += 1
            if len(self.violations) < VIOLATIONS_KEPT_MAX:
                self.violations.append(where + "\n  " + "\n  ".join(line[:800] for line in broken))


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much is tried."""

    states_per_point: int = 16
    recovery_states_per_point: int = 3
    recovery_hits_per_site: int = 2
    again_every: int = 5
    violations_max: int = VIOLATIONS_KEPT_MAX


@dataclasses.dataclass
class _Point:
    """One moment of a disk, to be judged when the disk has changed."""

    number: int
    disk: SimulatedDisk
    version: int
    cut: CrashPoint
    killed: SimulatedDisk
    frozen: Frozen


class EnoughViolations(Exception):
    """The run has shown what it can show."""


class CrashEnumerator:
    """Observer of a `StoreRun`."""

    def __init__(self, config: StoreConfig, limits: Limits, seed: int, title: str) -> None:
        self.tally = Tally()
        self._config = config
        self._limits = limits
        self._rng = random.Random(seed)
        self._title = title
        self._point: _Point | None = None
        self._hits: Counter[TraceSite] = Counter()
        self._turn = 0
        self._dumps: OrderedDict[bytes, Dump] = OrderedDict()
        self._main_sites: set[TraceSite] = set()
        self._recovery_sites: set[TraceSite] = set()

    def before(self, run: StoreRun, number: int) -> None:
        """A moment of which nothing is left to add can be judged."""
        disk = run.disk
        point = self._point
        if point is not None and point.disk is disk and point.version == disk._version:
            # The operation before this one changed nothing; more may be promised by now.
            point.frozen, point.number = run.freeze(), number
            return
        self._point = None
        if point is not None:
            self._judge(point)
        self._point = _Point(
            number, disk, disk._version, disk.crash_point(), killed_copy(disk), run.freeze()
        )

    def finish(self, run: StoreRun) -> Tally:
        """The moment after the last operation, and the sum of the sites."""
        self.before(run, run.disk.operation_count + 1)
        if self._point is not None:
            self._judge(self._point)
        for sites in (self._main_sites, self._recovery_sites):
            self.tally.sites |= {_site(site) for site in sites}
        self.tally.sites_hit |= {_site(site) for site in self._main_sites}
        self.tally.sites_hit |= {_site(site) for site in self._hits}
        return self.tally

    def _judge(self, point: _Point) -> None:
        tally = self.tally
        tally.points += 1
        self._main_sites.update(_trace_sites(point.disk, point.number))
        where = f"{self._title}, power cut before operation {point.number} ({_next(point)})"
        for state in point.cut.states(self._limits.states_per_point, self._rng):
            tally.states += 1
            found = self._open_and_check(lambda state=state: point.disk.reboot(state), point.frozen)
            tally.found(f"{where}: {state.describe()}" if found else "", found)
        tally.kills += 1
        killed = point.killed
        found = self._open_and_check(lambda: killed_copy(killed), point.frozen, killed=True)
        tally.found(f"{self._title}, kill before operation {point.number} ({_next(point)})", found)
        if tally.violation_count >= self._limits.violations_max:
            raise EnoughViolations

    def _open_and_check(
        self,
        fresh: Callable[[], SimulatedDisk],
        frozen: Frozen,
        *,
        killed: bool = False,
    ) -> list[str]:
        disk = fresh()
        self._turn += 1
        again = self._turn % self._limits.again_every == 0
        # A killed process leaves more than the bytes on the disk.
        fingerprint = b"" if killed else fingerprint_of(disk)
        known = self._dumps.get(fingerprint)
        if known is not None and not again:
            self.tally.known += 1
            self._dumps.move_to_end(fingerprint)
            return check(known, frozen)
        try:
            store = MessageStore.open(disk, self._config, clock=disk.clock)
            opened = disk.operation_count
            dump = dump_store(store, disk)
            broken = check(dump, frozen, killed=killed)
            if known is not None and known != dump:
                broken.append(f"the same disk gave {known} and then {dump}")
            if broken:
                return broken
            if fingerprint:
                self._remember(fingerprint, dump)
            few = self._limits.recovery_hits_per_site
            if few:
                sites = _trace_sites(disk, opened + 1)
                self._recovery_sites |= sites
                if any(self._hits[site] < few for site in sites):
                    broken = self._cut_recovery(fresh(), dump, frozen, killed=killed)
            if again and not broken:
                broken = self._open_again(store, disk, dump, frozen, killed=killed)
        except FAILURES as error:
            return [f"{type(error).__name__}: {error}"]
        return broken

    def _remember(self, fingerprint: bytes, dump: Dump) -> None:
        self._dumps[fingerprint] = dump
        if len(self._dumps) > DUMPS_KEPT_MAX:
            self._dumps.popitem(last=False)

    def _cut_recovery(
        self, disk: SimulatedDisk, reference: Dump, frozen: Frozen, *, killed: bool
    ) -> list[str]:
        cuts = _RecoveryCuts(self._config, self._limits, self._rng, self._hits, reference, frozen)
        cuts.run(disk, killed=killed)
        self.tally.recovery_states += cuts.states
        return cuts.broken

    def _open_again(
        self, store: MessageStore, disk: SimulatedDisk, dump: Dump, frozen: Frozen, *, killed: bool
    ) -> list[str]:
        self.tally.again += 1
        kind = self._turn // self._limits.again_every % 4
        if kind == 0:
            return [f"twice: {line}" for line in recovered_twice(disk, self._config, dump)]
        if kind == 1:
            lost = without_derived_files(disk, self._config, frozen, killed=killed)
            return [f"rebuilt: {line}" for line in lost]
        if kind == 2:
            return damage_is_reported(disk, self._config, dump, self._rng)
        return [f"later: {line}" for line in life_goes_on(store, disk, self._config, dump, frozen)]


class _RecoveryCuts:
    """Opens one disk with a cut (and a kill) before each operation of the recovery itself.

    A point is tried while its operation's site has few hits, so that rare paths get their turn.
    """

    def __init__(
        self,
        config: StoreConfig,
        limits: Limits,
        rng: random.Random,
        hits: Counter[TraceSite],
        reference: Dump,
        frozen: Frozen,
    ) -> None:
        self.states = 0
        self.broken: list[str] = []
        self._config = config
        self._limits = limits
        self._rng = rng
        self._hits = hits
        self._reference = reference
        self._frozen = frozen
        self._point: tuple[int, CrashPoint, SimulatedDisk] | None = None

    def run(self, disk: SimulatedDisk, *, killed: bool) -> None:
        """Recover `disk`, cutting on the way."""
        disk.on_operation = lambda number: self._before(disk, number, killed)
        MessageStore.open(disk, self._config, clock=disk.clock)
        self._before(disk, disk.operation_count + 1, killed)

    def _before(self, disk: SimulatedDisk, number: int, killed: bool) -> None:
        point, self._point = self._point, None
        if point is not None:
            self._try(disk, point, killed)
        self._point = number, disk.crash_point(), killed_copy(disk)

    def _try(
        self, disk: SimulatedDisk, point: tuple[int, CrashPoint, SimulatedDisk], killed: bool
    ) -> None:
        number, cut, dead = point
        method, path, code, _ = disk._trace[number - 1]
        site = method, path_class(path), code
        if self._hits[site] >= self._limits.recovery_hits_per_site or self.broken:
            return
        self._hits[site] += 1
        where = f"recovery cut before its operation {number} ({_site(site)})"
        for state in cut.states(self._limits.recovery_states_per_point, self._rng):
            # A killed process leaves bytes that a power cut may take before they are synced.
            broken = self._reopen(disk.reboot(state), killed=False, same=not killed)
            self._note(f"{where}: {state.describe()}", broken)
        self._note(f"killed: {where}", self._reopen(dead, killed=killed, same=True))

    def _note(self, where: str, broken: list[str]) -> None:
        if broken:
            self.broken = [*self.broken, where, *broken]

    def _reopen(self, disk: SimulatedDisk, *, killed: bool, same: bool) -> list[str]:
        self.states += 1
        store = MessageStore.open(disk, self._config, clock=disk.clock)
        dump = dump_store(store, disk)
        broken = check(dump, self._frozen, killed=killed)
        if same:
            broken += dump.differences(self._reference)
        if self.states % 4 == 0 and not broken:
            broken = life_goes_on(store, disk, self._config, dump, self._frozen)
        return broken


# Second openings


def recovered_twice(disk: SimulatedDisk, config: StoreConfig, before: Dump) -> list[str]:
    """I17: a second recovery finds what the first one left."""
    again = killed_copy(disk)
    dump = dump_store(MessageStore.open(again, config, clock=again.clock), again)
    return dump.differences(before)


def without_derived_files(
    disk: SimulatedDisk, config: StoreConfig, frozen: Frozen, *, killed: bool
) -> list[str]:
    """I5: queues and index come back from the log alone."""
    bare = killed_copy(disk)
    for name in DERIVED:
        if bare.exists(name):
            bare.delete(name)
    dump = dump_store(MessageStore.open(bare, config, clock=bare.clock), bare)
    return check(dump, frozen, killed=killed, derived_lost=True)


def damage_is_reported(
    disk: SimulatedDisk, config: StoreConfig, dump: Dump, rng: random.Random
) -> list[str]:
    """I14: a flipped bit in the recovered log, all of it durable, is an error and never a gap."""
    if not dump.records:
        return []
    hurt = killed_copy(disk)
    record = rng.choice(dump.records)
    position = record.position + rng.randrange(record.size)
    base = position - position % config.commit_log_file_size
    hurt.flip(f"commitlog/{base:020d}", 8 * (position - base) + rng.randrange(8))
    try:
        store = MessageStore.open(hurt, config, clock=hurt.clock)
        found = dump_store(store, hurt)
    except CorruptStore:
        return []
    except (AssertionError, UnicodeDecodeError):
        # Our own parser stumbled over the damage before a reader asked for it.
        return []
    deleted = record.sent.key in dump.queues and record.offset < dump.queues[record.sent.key][0]
    unread = record.sent.key not in found.queues or deleted
    return [] if unread else [f"I14 damage at {position} in {record} is not reported"]


def life_goes_on(
    store: MessageStore, disk: SimulatedDisk, config: StoreConfig, dump: Dump, frozen: Frozen
) -> list[str]:
    """Put a message as long as the first lost one, cut the power, find it alone behind the rest.

    Bytes of the lost tail that recovery left behind would now follow a valid record.
    """
    lost = _first_lost(frozen, dump.log_end)
    size = len(lost.sent.body) if lost is not None else 100
    named = dict(lost.sent.properties) if lost is not None else {}
    topic = "t0" if lost is None or lost.sent.key[0] == GROUP_TOPIC else lost.sent.key[0]
    message = Message(
        topic,
        b"#" * size,
        1,
        tags=named.pop("TAGS", ""),
        keys=named.pop("KEYS", ""),
        properties=named,
    )
    result = store.append(message)
    if not result.ok:
        return [f"recovered, but a put is refused: {result}"]
    store.flush()
    sent = Sent((topic, 1), message.body, _all_properties(message))
    end = dump.queues[sent.key].max_offset if sent.key in dump.queues else 0
    placed = Placed(result.position, result.end_position - result.position, end, sent)
    later = _after(frozen, dump, placed)
    nothing = next(iter(disk.crash_states(2)))
    after = disk.reboot(nothing)
    return check(dump_store(MessageStore.open(after, config, clock=after.clock), after), later)


def _all_properties(message: Message) -> frozenset[tuple[str, str]]:
    named = {**message.properties, "TAGS": message.tags, "KEYS": message.keys}
    return frozenset((name, value) for name, value in named.items() if value)


def _first_lost(frozen: Frozen, log_end: int) -> Placed | None:
    records = list(frozen.records.values())
    if frozen.pending is not None:
        records += frozen.pending.records
    lost = [record for record in records if record.position >= log_end]
    return min(lost, key=lambda record: record.position, default=None)


def _after(frozen: Frozen, dump: Dump, added: Placed) -> Frozen:
    """The history of a store that recovered to `dump` and then took one message."""
    records = {r.position: Placed(r.position, r.size, r.offset, r.sent) for r in dump.records}
    records[added.position] = added
    ends = {key: queue.max_offset for key, queue in dump.queues.items()}
    ends[added.sent.key] = added.offset + 1
    return dataclasses.replace(
        frozen,
        records=records,
        pending=Append((added,), whole=False),
        groups=(),
        log_end=added.end,
        safe_end=added.end,
        kept_end=added.end,
        start_min=dump.log_start,
        start_max=dump.log_start,
        visible={},
        next_offsets=ends,
        deleted={key: queue.min_offset for key, queue in dump.queues.items()},
        deleting=frozenset(),
        epoch=dump.epoch,
    )


# The disk


def killed_copy(disk: SimulatedDisk) -> SimulatedDisk:
    """What a kill at this moment leaves, while the process continues."""
    return disk.copy()


def fingerprint_of(disk: SimulatedDisk, *, with_cache: bool = False) -> bytes:
    """Of everything that the opening of a disk after a power cut depends on.

    `with_cache`: or after the end of a process, which leaves what it stored and did not sync.
    """
    moment = disk._boot_number, disk.clock.wall_ms(), disk.clock.monotonic()
    return _digest(repr((moment, _shape(disk.root, with_cache))).encode())


def _shape(directory: DirectoryNode, with_cache: bool) -> list[object]:
    return [
        (name, _shape(node, with_cache))
        if isinstance(node, DirectoryNode)
        else (
            *(name, node.modified_ms, node.holes, _digest(node.durable)),
            *((_digest(bytes(node.content)), sorted(node.lost)) if with_cache else ()),
        )
        for name, node in sorted(directory.entries.items(), key=lambda item: item[0])
    ]


@functools.lru_cache(maxsize=4096)
def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _trace_sites(disk: SimulatedDisk, before: int) -> set[TraceSite]:
    return {(m, path_class(p), c) for m, p, c, _ in disk._trace[: before - 1]}


def _site(site: TraceSite) -> OperationSite:
    method, kind, code = site
    function = getattr(code, "co_qualname", code.co_name)
    return OperationSite(method, kind, f"{code.co_filename.rpartition('/')[2]}:{function}")


def _next(point: _Point) -> str:
    trace = point.disk._trace
    if point.number > len(trace):
        return "the end"
    method, path, _, _ = trace[point.number - 1]
    return f"{method} {path}"


def timed(work: Callable[[], Tally]) -> Tally:
    """The tally with the time it took."""
    started = time.perf_counter()
    tally = work()
    tally.seconds += time.perf_counter() - started
    return tally


def violation_report(tally: Tally) -> str:
    """For an assertion: the first violations in full."""
    return "\n".join([f"{tally.violation_count} violations", *tally.violations[:5]])
