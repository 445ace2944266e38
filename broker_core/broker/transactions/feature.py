"""Transactions: half messages, their ends, and the checks of those that stay open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker_core.access.accounts import Account
from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.request_router import Processor
from broker_core.broker.settings.broker_config import BrokerConfig
from broker_core.broker.transactions.check import TransactionCheck
from broker_core.broker.transactions.end import EndTransactionProcessor
from broker_core.broker.transactions.progress import TRANSACTION_PROGRESS_FILE
from broker_core.broker.transactions.reopen_given_up import ReopenGivenUpProcessor
from broker_core.broker.transactions.service import Transactions

_HOUR_MS: Final = 3_600_000


class TransactionsFeature(Feature):
    """`service` ends transactions, `check` asks producers about open ones. Masters only.

    `may_publish(account, topic)` says whether a producer of the account may be asked.
    """

    def __init__(
        self, context: BrokerContext, *, may_publish: Callable[[Account | None, str], bool]
    ) -> None:
        self._store = context.store
        config = context.config
        self.progress_table = context.table(TRANSACTION_PROGRESS_FILE)
        self.service = Transactions(
            store=context.store,
            offsets=context.offsets,
            topics=context.topics,
            table=self.progress_table,
            clock=context.clock,
            delay_level_max=len(context.delay_levels_ms),
            stats=context.stats,
        )
        self.check = TransactionCheck(
            transactions=self.service,
            clients=context.clients,
            broker_name=config.broker_name,
            timeout_ms=config.transaction_timeout_ms,
            interval_ms=config.transaction_check_interval_ms,
            checks_max=config.transaction_check_max,
            age_max_ms=config.store.file_reserved_hours * _HOUR_MS,
            may_publish=may_publish,
        )

    def processors(self) -> tuple[Processor, ...]:
        """Handlers of the end of a transaction and of its resumption by an administrator."""
        return (
            EndTransactionProcessor(store=self._store, transactions=self.service),
            ReopenGivenUpProcessor(store=self._store),
        )

    def recover(self) -> None:
        """Find open transactions in the log, then check them in rounds."""
        self.service.start()
        self.check.start(asyncio.get_running_loop())

    def settings_changed(self, config: BrokerConfig) -> None:
        """Apply the limits of the checks."""
        self.check.reconfigure(
            config.transaction_timeout_ms,
            config.transaction_check_interval_ms,
            config.transaction_check_max,
            config.store.file_reserved_hours * _HOUR_MS,
        )

    async def stop(self) -> None:
        """End the checks first: they end transactions."""
        self.check.stop()
        self.service.stop()
