"""Checks on the driver whether `deadLetterTopic` exists, before there are tasks that need it."""

from __future__ import annotations

import logging

from broker_core import ClientInstance, errors
from pyspark_rmq.options import SourceOptions

_log = logging.getLogger(__name__)


class DeadLetterCheck:
    """Looks for the topic until it was found once."""

    def __init__(self, client: ClientInstance, options: SourceOptions) -> None:
        self._client = client
        self._topic = options.payload.dead_letter_topic
        self._name_servers = options.connection.shown
        self._was_found = False

    async def check(self) -> None:
        """Raise `InvalidArgument` if the topic does not exist.

        Brokers that are away may not be in the routes, so call it when the topics of the
        subscription were found.
        """
        if not self._topic or self._was_found:
            return
        try:
            await self._client.name_servers.route(self._topic)
        except errors.TopicNotExist:
            raise errors.InvalidArgument(
                errors.explained(
                    f"option deadLetterTopic={self._topic}: the topic does not exist at"
                    f" {self._name_servers}, and the source creates none: create it, as with"
                    f" rmq admin topic create -t {self._topic}",
                    "topic-not-found",
                )
            ) from None
        except errors.RmqError as error:
            # Tasks look for it, too.
            _log.info("deadLetterTopic=%s was not checked: %s", self._topic, error)
            return
        self._was_found = True
