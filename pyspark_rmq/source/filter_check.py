"""Checks on the driver whether brokers can evaluate `filterSql`.

A task would treat the broker's refusal as transient and retry for minutes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from broker_core import ClientInstance, MessageQueue, PullConsumer, errors
from pyspark_rmq.options import SourceOptions

_log = logging.getLogger(__name__)

_SQL: Final = "SQL92"
_PARSE_FAILED: Final = errors.InvalidSubscription.response_code
_REFUSED: Final = errors.RmqError.response_code


class FilterCheck:
    """Asks each broker once per topic."""

    def __init__(self, client: ClientInstance, options: SourceOptions) -> None:
        self._consumer = PullConsumer(client, options.reader_group)
        self._expression = options.sql_expression
        self._checked: set[tuple[str, str]] = set()

    async def check(self, queues: Iterable[MessageQueue]) -> None:
        """Raise `InvalidConfig` if a broker of these queues cannot evaluate the expression."""
        if not self._expression:
            return
        for queue in queues:
            if (queue.topic, queue.broker_name) not in self._checked:
                await self._check(queue)

    async def _check(self, queue: MessageQueue) -> None:
        try:
            await self._consumer.pull(
                queue, 0, max_count=1, expression=self._expression, expression_type=_SQL
            )
        except errors.RemoteError as error:
            text = str(error)
            if error.code == _PARSE_FAILED:
                raise errors.InvalidConfig(
                    "filterSql",
                    self._expression,
                    f"broker {queue.broker_name} does not understand it: {text}",
                ) from None
            if error.code == _REFUSED and "filter" in text and _SQL in text:
                raise errors.InvalidConfig(
                    "filterSql",
                    self._expression,
                    f"broker {queue.broker_name} does not filter by SQL92 ({text}). Set"
                    " enablePropertyFilter=true on the broker, or filter in Spark with"
                    " .where(…) instead",
                ) from None
            _log.info("filterSql was not checked at %s: %s", queue.broker_name, text)
            return
        except errors.RmqError as error:
            # Not reachable; checked again with the next batch.
            _log.info("filterSql was not checked at %s: %s", queue.broker_name, error)
            return
        self._checked.add((queue.topic, queue.broker_name))
