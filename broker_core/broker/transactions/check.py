"""Checks open transactions with their producers, in rounds, some half messages at a time.

A half message is checked once per round when it is older than `transactionTimeOut`, or than its own
CHECK_IMMUNITY_TIME_IN_SECONDS. Only checks that were sent count: a transaction waits while no
producer of its group is connected, or none whose account may send to the topic. After
`transactionCheckMax` checks without an answer, or shortly before retention deletes it, the half
message is given up: moved to `TRANS_CHECK_MAX_TIME_TOPIC` for an operator.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from broker_core.access.accounts import Account
from broker_core.broker.tables.client_table import ClientTable
from broker_core.broker.timed_service import Timer, Timers
from broker_core.broker.transactions.half_message import Half, check_request
from broker_core.broker.transactions.service import Transactions, Verdict
from broker_core.errors import ConnectionLost, RmqError, SystemBusy
from broker_core.remoting.connection import Connection

_log = logging.getLogger(__name__)

# Pause between two parts of a round, for other requests and for the producers.
PAUSE_MS: Final = 10
# Shortest immunity: the property is in seconds.
_YOUNGEST_MS: Final = 1_000


class TransactionCheck:
    """Event loop only."""

    def __init__(
        self,
        *,
        transactions: Transactions,
        clients: ClientTable,
        broker_name: str,
        timeout_ms: int,
        interval_ms: int,
        checks_max: int,
        age_max_ms: int,
        may_publish: Callable[[Account | None, str], bool] = lambda account, topic: True,
    ) -> None:
        """`may_publish(account, topic)`: whether a client of the account may send to the topic."""
        self._transactions = transactions
        self._clients = clients
        self._broker_name = broker_name
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._checks_max = checks_max
        self._age_max_ms = age_max_ms
        self._youngest_ms = min(timeout_ms, _YOUNGEST_MS)
        self._timers: Timers | None = None
        self._timer: Timer | None = None
        self._blocks: deque[int] = deque()
        self._turn = 0
        # Groups without a producer in this round; each is logged once.
        self._silent: dict[str, int] = {}
        self._may_publish = may_publish
        self.asked_count = 0

    def reconfigure(
        self, timeout_ms: int, interval_ms: int, checks_max: int, age_max_ms: int
    ) -> None:
        """Apply other limits from the next round on."""
        self._age_max_ms = age_max_ms
        self._timeout_ms = timeout_ms
        self._interval_ms = interval_ms
        self._checks_max = checks_max
        self._youngest_ms = min(timeout_ms, _YOUNGEST_MS)

    def start(self, timers: Timers) -> None:
        """Start the rounds. `Transactions` must have started."""
        self._timers = timers
        self._timer = timers.call_later(self._interval_ms / 1000, self._begin_round)

    def stop(self) -> None:
        self._timers = None
        if self._timer is not None:
            self._timer.cancel()

    def _begin_round(self) -> None:
        if self._timers is None:
            return
        self._blocks = deque(self._transactions.window.blocks())
        self._silent.clear()
        self._go_on()

    def _go_on(self) -> None:
        if self._timers is None:
            return
        if self._blocks:
            try:
                self._look_at(self._blocks.popleft())
            except RmqError as error:
                _log.warning("half messages cannot be checked: %s", error)
        if self._blocks:
            self._timer = self._timers.call_later(PAUSE_MS / 1000, self._go_on)
            return
        for group, count in self._silent.items():
            _log.warning("%d transactions wait for a producer of group %s", count, group[:255])
        self._timer = self._timers.call_later(self._interval_ms / 1000, self._begin_round)

    def _look_at(self, block: int) -> None:
        for offset in self._transactions.window.open_in(block):
            if self._transactions.waited_ms(offset) < self._youngest_ms:
                # All later ones are younger.
                self._blocks.clear()
                return
            half = self._transactions.half(offset)
            if half is not None:
                self._check(half)

    def _check(self, half: Half) -> None:
        age_ms = self._transactions.age_ms(half)
        window, offset = self._transactions.window, half.record.queue_offset
        times = half.check_times + window.checks(offset)
        immunity_ms = self._timeout_ms if half.immunity_ms is None else half.immunity_ms
        if age_ms >= self._age_max_ms:
            self._give_up(half, times)
        elif age_ms < immunity_ms:
            return
        elif times >= self._checks_max:
            self._give_up(half, times)
        elif self._ask(half, times + 1):
            window.set_checks(offset, window.checks(offset) + 1)
            self._transactions.note_checks()

    def _give_up(self, half: Half, times: int) -> None:
        ended = self._transactions.end(half, Verdict.GIVEN_UP)
        if ended.result.ok:
            _log.error(
                "transaction %s of group %s for topic %s is given up after %d checks",
                half.unique_key[:64],
                half.group[:255],
                half.topic,
                times,
            )

    def _ask(self, half: Half, times: int) -> bool:
        producer = self._producer(half.group, half.topic)
        if producer is None:
            self._silent[half.group] = self._silent.get(half.group, 0) + 1
            return False
        try:
            producer.oneway(check_request(half, times, self._broker_name))
        except (ConnectionLost, SystemBusy):
            return False
        self.asked_count += 1
        return True

    def _producer(self, group: str, topic: str) -> Connection | None:
        """A writable connection of the group, in turn.

        The check carries the message, and any client may claim to be in a producer group: only
        accounts that may send to the topic are asked.
        """
        found = [
            member.connection
            for member in self._clients.producers(group)
            if member.connection.is_writable and self._may_publish(member.account, topic)
        ]
        if not found:
            return None
        self._turn += 1
        return found[self._turn % len(found)]
