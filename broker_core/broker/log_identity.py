"""Which log this is, for clients that keep offsets of it: the same name on a master and its slaves.

A store has an id and an epoch of its own; offsets that were read from a master must count at its
slaves, and at the slave that takes its place. So a slave takes over what its master says and keeps
it in `config/logIdentity.json`, also when it becomes the master. Until its master has told it, a
slave gives no name at all: its own would look like another log.

The epoch is another one when messages that somebody may have read can be gone: after a power cut,
and after a promotion, unless the old master showed nobody what any of its slaves did not have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from broker_core.codec.json_fields import flag_field, text_field, whole_field
from broker_core.errors import InvalidArgument, StoreUnusable
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
    ) -> None:
        self._table = table
        self._own_id = own_id
        self._own_epoch = own_epoch
        self._is_following = is_following
        # What was taken over from a master; an empty id is none.
        self._id = self._epoch = ""
        self._is_confirmed = False
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

    def adopt(self, store_id: str, epoch: str, is_confirmed: bool) -> None:
        """What the master says; `is_confirmed` if it shows only what all of its slaves have."""
        found = (store_id, epoch, is_confirmed, _FOLLOWING)
        if store_id and found != (self._id, self._epoch, self._is_confirmed, self._since):
            self._id, self._epoch, self._is_confirmed, self._since = found
            self._save()

    def promoted(self, number: int) -> None:
        """This broker is the master from now on, in the epoch of that number."""
        if not self._id or self._since != _FOLLOWING:
            return
        if not self._is_confirmed:
            self._epoch = f"{self._epoch}/{number}"
        self._since = self._own_epoch()
        self._save()

    def _take(self, stored: dict[str, Any]) -> None:
        self._id = text_field(stored, "storeId", "")
        self._epoch = text_field(stored, "epoch", "")
        self._is_confirmed = flag_field(stored, "confirmed", False)
        self._since = whole_field(stored, "since", _FOLLOWING, least=_FOLLOWING)

    @names_disk_errors
    def _save(self) -> None:
        self._table.save(
            {
                "storeId": self._id,
                "epoch": self._epoch,
                "confirmed": self._is_confirmed,
                "since": self._since,
            }
        )
