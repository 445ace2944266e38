"""Which log this is, for clients that keep offsets of it: the same name on a master and its slaves.

A store has an id and an epoch of its own; offsets that were read from a master must count at its
slaves, and at the slave that takes its place. So a slave takes over what its master says and keeps
it in `config/logIdentity.json`, also when it becomes the master. Until its master has told it, a
slave gives no name at all: its own would look like another log.

The epoch is another one when messages that were read may be gone: after a failed disk, and after
every promotion, since a slave cannot know what others confirmed while it was away. It is for
readers that know nothing else. Others name the run of the log that they have read (`RunMark`),
which says exactly whether this log still has it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from broker_core.codec.json_fields import text_field, whole_field
from broker_core.errors import InvalidArgument, StoreUnusable
from broker_core.protocol_codes import RunAnswer
from broker_core.replication.log_epochs import EpochHistory, RunMark
from broker_core.storage.json_table import JsonTable
from broker_core.store.disk_errors import names_disk_errors

_log = logging.getLogger(__name__)

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
        # What was taken over from a master; an empty id is none.
        self._id = self._epoch = ""
        # The epoch of the store here when this broker took the master's place.
        self._since = _FOLLOWING
        stored = table.load()
        if stored is not None:
            try:
                self._take(stored)
            except InvalidArgument as error:
                raise StoreUnusable(f"{IDENTITY_FILE}: {error}. Repair the file") from error

    @property
    def store_id(self) -> str:
        """Of the log, wherever it is; empty while a slave does not know."""
        return self._id or ("" if self._is_following() else self._own_id)

    @property
    def epoch(self) -> str:
        """Another text when messages that were read may be gone."""
        own = self._own_epoch()
        if not self._id:
            return "" if self._is_following() else str(own)
        return self._epoch if self._since in (_FOLLOWING, own) else f"{self._epoch}+{own}"

    def run_at(self, position: int) -> str:
        """The run that wrote the log up to `position`, for `has_run`; empty without a name."""
        return str(self._history().run_at(position)) if self.store_id else ""

    def has_run(self, run: str, *, is_sure: bool = True) -> RunAnswer:
        """Whether this log has what a reader has read, up to the end of its last message.

        Not `is_sure`: the broker shows less than another one may have shown already.
        """
        mark = RunMark.parse(run)
        found = None if mark is None else self._history().has_run(mark, self._log_end())
        if found:
            return RunAnswer.HAS
        is_slave = self._is_following()
        if is_slave and found is None and mark is not None and self._knows(mark):
            # It has not got there yet; what it has is the same.
            return RunAnswer.HAS
        return RunAnswer.UNSURE if is_slave or not is_sure else RunAnswer.LACKS

    def _knows(self, mark: RunMark) -> bool:
        return any((e.number, e.owner) == mark[1:] for e in self._history().epochs)

    def adopt(self, store_id: str, epoch: str) -> None:
        """What the master says."""
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
