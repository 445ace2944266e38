"""Epochs of a log: which run of a master wrote which part, and where two logs agree. Pure.

Every run of a master is an epoch: it begins at the end of the log at that time, and only this run
appends to it. So a common epoch proves that two logs are equal up to its start, and further to the
position where one of them ends or continues with another epoch.

Numbers grow. A promotion starts the next multiple of 2**32 (a new term), a restart of a master adds
1. So a promoted slave is always newer than the old master, even after many restarts of that one.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

TERM: Final = 1 << 32
# Restarts over many years; older entries add no information.
EPOCHS_MAX: Final = 1024

# Runs that a reader keeps: a backup from before more restarts has none of them.
RUNS_NAMED: Final = 8

_MARK: Final = re.compile(r"([0-9]{1,19})\.([0-9]{1,19})\.([0-9A-Za-z-]{0,64})", re.ASCII)


class Epoch(NamedTuple):
    """One run of one master. `owner` is random, so that two runs are never confused."""

    number: int
    owner: str
    start: int

    def __str__(self) -> str:
        return f"{self.number}.{self.owner}.{self.start}"


class RunMark(NamedTuple):
    """The run of a master that wrote the byte before a position of its log.

    A reader keeps it with what it has read. A restored backup, a promoted slave that was behind and
    a log that was cut cannot have the same run up to the same position again.
    """

    position: int
    number: int = 0
    owner: str = ""
    """Both empty for bytes that are older than the first epoch."""

    def __str__(self) -> str:
        return f"{self.position}.{self.number}.{self.owner}"

    @staticmethod
    def parse(text: str) -> RunMark | None:
        """Parse a mark; None for any other string."""
        found = _MARK.fullmatch(text)
        return None if found is None else RunMark(int(found[1]), int(found[2]), found[3])


class LastRole(enum.Enum):
    """Role of the last run of a store."""

    NONE = "none"
    MASTER = "master"
    SLAVE = "slave"
    STEPPED_DOWN = "stepped down"
    """Configured as a master that found a newer one and follows it."""


class EpochHistory(NamedTuple):
    """The epochs of a log, oldest first, and the highest number that this broker has seen."""

    epochs: tuple[Epoch, ...] = ()
    seen: int = 0
    role: LastRole = LastRole.NONE
    confirmed: int = -1
    """Position of the slaves when the newest epoch began; -1 if its master waits for none."""
    slave_id: int = 0
    """The brokerId that a master which stepped down has taken; 0 for all others."""

    @property
    def current(self) -> Epoch | None:
        """The newest one."""
        return self.epochs[-1] if self.epochs else None

    def until(self, end: int) -> EpochHistory:
        """This history without the epochs that start after `end`."""
        kept = tuple(epoch for epoch in self.epochs if epoch.start <= end)
        return self._replace(epochs=kept)

    def reached(self, end: int) -> int:
        """Number of the epoch that a log with the end `end` has reached; 0 before there is any.

        A slave knows all epochs of its master before it has their bytes, so later epochs do not
        count. An epoch that begins exactly at `end` counts only if it is a promotion: that decides
        how the log continues. After a mere restart of the master, a log without that epoch may be
        longer than this one.
        """
        number = 0
        for epoch in self.epochs:
            is_promotion = epoch.number // TERM > number // TERM
            if epoch.start < end or (epoch.start == end and is_promotion):
                number = epoch.number
        return number

    def run_at(self, position: int) -> RunMark:
        """The run that the byte before `position` belongs to."""
        writers = [epoch for epoch in self.epochs if epoch.start < position]
        if not writers:
            return RunMark(position)
        return RunMark(position, writers[-1].number, writers[-1].owner)

    def runs_until(self, position: int) -> tuple[Epoch, ...]:
        """The latest runs that wrote the log up to a position, oldest first."""
        return tuple(epoch for epoch in self.epochs if epoch.start < position)[-RUNS_NAMED:]

    def has_run(self, mark: RunMark, end: int) -> bool | None:
        """Whether a log that ends at `end` contains the bytes up to `mark`.

        None when the log ends before the mark and nothing contradicts it: a slave may still receive
        the bytes.
        """
        later = [epoch for epoch in self.epochs if epoch.number > mark.number]
        is_known = any((e.number, e.owner) == mark[1:] for e in self.epochs)
        was_dropped = len(self.epochs) == EPOCHS_MAX and mark.number < self.epochs[0].number
        if mark.number and not is_known and not was_dropped:
            return False if later else None
        if later:
            return mark.position <= later[0].start
        return True if mark.position <= end else None

    @property
    def next_term(self) -> int:
        """Number of the epoch that a promotion starts."""
        return (self.seen // TERM + 1) * TERM

    def heard_of(self, epoch: int) -> EpochHistory:
        """This history, once the broker knows that an epoch exists or is about to begin."""
        return self._replace(seen=max(self.seen, epoch))

    def outranks(self, epoch: int, owner: str) -> bool:
        """Whether this master continues when another one has an epoch of the same term.

        Both compare the random owners of their runs, so exactly one of them continues. A release
        that does not report the owner cannot start a new term; it always steps down.
        """
        current = self.current
        same_term = epoch // TERM == self.seen // TERM
        return current is not None and same_term and current.owner > owner

    def begin(self, owner: str, end: int, *, new_term: bool = False) -> EpochHistory:
        """A master starts to append at `end`: a restart, or a promotion when it was none before.

        With `new_term` a master that outranks another one becomes newer than it.
        """
        kept = self.until(end).epochs
        number = self.seen + 1
        if new_term or self.role is not LastRole.MASTER:
            number = self.next_term
        epochs = (*kept, Epoch(number, owner, end))[-EPOCHS_MAX:]
        return EpochHistory(epochs, number, LastRole.MASTER)

    def followed(self, master: Sequence[Epoch], seen: int) -> EpochHistory:
        """Adopt the epochs of the master's log."""
        highest = max((self.seen, seen, *(epoch.number for epoch in master)))
        role = self.role if self.role is LastRole.STEPPED_DOWN else LastRole.SLAVE
        return EpochHistory(tuple(master)[-EPOCHS_MAX:], highest, role, slave_id=self.slave_id)


def parse_runs(text: str) -> tuple[Epoch, ...]:
    """The runs of a text that `str` of each made, joined by commas; empty for any other text."""
    found = []
    for part in text.split(",", RUNS_NAMED)[:RUNS_NAMED]:
        number, _, rest = part.partition(".")
        owner, _, start = rest.rpartition(".")
        mark = RunMark.parse(f"{start}.{number}.{owner}")
        if mark is None:
            return ()
        found.append(Epoch(mark.number, mark.owner, mark.position))
    return tuple(found)


def agreed_end(
    ours: Sequence[Epoch], our_end: int, theirs: Sequence[Epoch], their_end: int
) -> int | None:
    """End of the common part of two logs; None when they have no common epoch.

    Symmetric. A log without a byte agrees with every other.
    """
    common = set(ours) & set(theirs)
    if not common:
        return None
    last = max(common, key=lambda epoch: epoch.number)
    limits = [our_end, their_end]
    for epochs in (ours, theirs):
        later = [epoch.start for epoch in epochs if epoch.number > last.number]
        limits += later[:1]
    return min(limits)


def was_restarted(ours: Sequence[Epoch], theirs: Sequence[Epoch]) -> bool:
    """Whether the epochs after the last common one are restarts of the same master."""
    common = set(ours) & set(theirs)
    last = max(common, key=lambda epoch: epoch.number)
    later = [epoch.number for epoch in theirs if epoch.number > last.number]
    return bool(later) and later[0] // TERM == last.number // TERM
