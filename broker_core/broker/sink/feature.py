"""The exactly-once sink: staged records, batches and their publication."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker_core.broker.context import BrokerContext
from broker_core.broker.feature import Feature
from broker_core.broker.request_router import Processor
from broker_core.broker.sink.batches import SINKS_FILE, SinkBatches
from broker_core.broker.sink.processor import SinkPublishProcessor
from broker_core.broker.sink.publisher import SinkPublisher
from broker_core.broker.sink.staging import SinkStaging
from broker_core.codec.wire.send_request import SendRequest
from broker_core.errors import RmqError

_log = logging.getLogger(__name__)


class SinkFeature(Feature):
    """`batches` remembers what was published, `staging` holds what is not yet.

    `check_queue(request)` raises when a send to that queue would be rejected.
    """

    def __init__(
        self, context: BrokerContext, *, check_queue: Callable[[SendRequest], object]
    ) -> None:
        self._context = context
        settings = context.config.store
        self.batches = SinkBatches(
            store=context.store,
            table=context.table(SINKS_FILE),
            clock=context.clock,
            prepared_keep_ms=2 * settings.staging_expiry_ms,
        )
        self.staging = SinkStaging(
            store=context.store,
            clock=context.clock,
            check_queue=check_queue,
            message_size_max=settings.message_size_max,
            segment_size=settings.commit_log_file_size,
        )

    def processors(self) -> tuple[Processor, ...]:
        """The handler of staging and publication."""
        context = self._context
        publisher = SinkPublisher(
            store=context.store, batches=self.batches, staging=self.staging, stats=context.stats
        )
        return (
            SinkPublishProcessor(
                store=context.store,
                batches=self.batches,
                staging=self.staging,
                publisher=publisher,
                # Access to topics cannot be checked in files that clients write themselves.
                local_root="" if context.config.acl_enable else context.config.store_root,
            ),
        )

    async def stop(self) -> None:
        """Save the batches."""
        try:
            self.batches.save()
        except RmqError as error:
            # The log has all of them; the next start reads more of it.
            _log.warning("sink batches were not saved: %s", error)
