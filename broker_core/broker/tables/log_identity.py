"""Identity of the log for clients that store offsets: the same on a master and its slaves.

A store has its own id and epoch, but offsets read from a master must be valid on its slaves and
after a promotion. So a slave adopts its master's identity and keeps it in
`config/logIdentity.json`, also when it becomes the master. Before its master has reported one, a
slave reports no identity: its own would look like another log.

The epoch changes when messages that were read may be lost: after a failed disk, and after every
promotion, since a slave cannot know what others confirmed while it was away. Newer readers name the
run of the log that they have read instead (`RunMark`), which says exactly whether this log has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from broker_core.codec.json.fields import text_field, whole_field
from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.protocol_codes import RunAnswer
from broker_core.replication.log_epochs import EpochHistory, RunMark, agreed_end, parse_runs
from broker_core.storage.files.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

IDENTITY_FILE: Final = "config/logIdentity.json"
_FOLLOWING: Final = -1


class LogIdentity:
    """Event loop only. `own_epoch()` is the epoch of the store here; a slave `is_following()`."""

    def __init__(
        self,
        table: JsonTable,
        own_id: str,
        own_epoch: Callable[[], int],
        is_following: Callable[[], bool] = lambda: False,
        *,
        history: Callable[[], EpochHistory] = EpochHistory,
        log_end: Callable[[], int] = lambda: 0,
    ) -> None:
        self._table = table
        self._own_id = own_id
        self._own_epoch = own_epoch
        self._is_following = is_following
        self._history = history
        self._log_end = log_end
        # Adopted from a master; an empty id is none.
        self._id = self._epoch = ""
        # The epoch of the store here when this broker was promoted.
        self._since = _FOLLOWING
        stored = table.load()
        if stored is not None:
            try:
                self._take(stored)
            except InvalidArgument as error:
                raise StoreUnusable(f"{IDENTITY_FILE}: {error}. Repair the file") from error

    @property
    def store_id(self) -> str:
        """Id of the log, shared by master and slaves; empty while a slave does not know it."""
        return self._id or ("" if self._is_following() else self._own_id)

    @property
    def epoch(self) -> str:
        """Changes when messages that were read may be lost."""
        own = self._own_epoch()
        if not self._id:
            return "" if self._is_following() else str(own)
        return self._epoch if self._since in (_FOLLOWING, own) else f"{self._epoch}+{own}"

    def run_at(self, position: int) -> str:
        """The run that wrote the log up to `position`, for `has_run`; empty without an identity."""
        return str(self._history().run_at(position)) if self.store_id else ""

    def runs_until(self, position: int) -> str:
        """The latest runs that wrote the log up to `position`, for `agreed_end`."""
        return ",".join(map(str, self._history().runs_until(position))) if self.store_id else ""

    def agreed_end(self, run: str, runs: str) -> int | None:
        """Up to where this log is the one of a reader; None if that is not known.

        `runs` are the latest runs of the reader's log, `run` the last one and its position.
        """
        mark, theirs = RunMark.parse(run), parse_runs(runs)
        if mark is None or not theirs:
            return None
        return agreed_end(self._history().epochs, self._log_end(), theirs, mark.position)

    def has_run(self, run: str, *, is_sure: bool = True) -> RunAnswer:
        """Whether this log has everything that a reader has read.

        Without `is_sure` the broker may show less than another one has shown already.
        """
        mark = RunMark.parse(run)
        found = None if mark is None else self._history().has_run(mark, self._log_end())
        if found:
            return RunAnswer.HAS
        is_slave = self._is_following()
        if is_slave and found is None and mark is not None and self._knows(mark):
            # The log is shorter; up to its end it is the same.
            return RunAnswer.HAS
        return RunAnswer.UNSURE if is_slave or not is_sure else RunAnswer.LACKS

    def _knows(self, mark: RunMark) -> bool:
        return any((e.number, e.owner) == mark[1:] for e in self._history().epochs)

    def adopt(self, store_id: str, epoch: str) -> None:
        """Adopt the identity that the master reports."""
        found = (store_id, epoch, _FOLLOWING)
        if store_id and found != (self._id, self._epoch, self._since):
            self._id, self._epoch, self._since = found
            self._save()

    def promoted(self, number: int) -> None:
        """This broker is the master from now on, in the epoch of that number."""
        if not self._id or self._since != _FOLLOWING:
            return
        self._epoch = f"{self._epoch}/{number}"
        self._since = self._own_epoch()
        self._save()

    def _take(self, stored: dict[str, Any]) -> None:
        self._id = text_field(stored, "storeId", "")
        self._epoch = text_field(stored, "epoch", "")
        self._since = whole_field(stored, "since", _FOLLOWING, least=_FOLLOWING)

    @names_disk_errors
    def _save(self) -> None:
        self._table.save({"storeId": self._id, "epoch": self._epoch, "since": self._since})
