"""Topics that sends make, many with one write of the table.

A send to a topic that does not exist waits until the topic is on disk, and is stored then. Every
topic that is asked for meanwhile goes into the same write: the table is one file, and thousands of
new topics would write it thousands of times. A write begins as soon as the loop has looked at what
came, or, while the table is large, after about the time that the last one took.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker_core.broker.topic_table import TopicTable
from broker_core.codec.topic_config import TopicConfig
from broker_core.errors import RmqError
from broker_core.runtime.clock import Clock

# However slow the disk is, a first send waits for no more than this before its write begins.
GATHER_S_MAX: Final = 0.1


class NewTopics:
    """Event loop only. `topics` is the table they go to."""

    def __init__(self, topics: TopicTable, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._asked: dict[str, TopicConfig] = {}
        self._written: asyncio.Future[None] | None = None
        self._last_write_s = 0.0
        self.write_count = 0

    def make(
        self, topic: str, default_topic: str, queue_count: int, sys_flag: int = 0
    ) -> asyncio.Future[None] | None:
        """Make a topic from a template; the future is done when it is on disk.

        None when it is there already or may not be made. A table that cannot be written fails the
        future, and no topic of that write exists then.
        """
        if self._topics.find(topic) is not None:
            return None
        if topic not in self._asked:
            made = self._topics.from_template(topic, default_topic, queue_count, sys_flag)
            if made is None:
                return None
            self._topics.check_room(made, len(self._asked))
            self._asked[topic] = made
        if self._written is None:
            loop = asyncio.get_running_loop()
            self._written = loop.create_future()
            loop.call_later(min(self._last_write_s, GATHER_S_MAX), self._write)
        return self._written

    def _write(self) -> None:
        asked, self._asked = self._asked, {}
        written, self._written = self._written, None
        assert written is not None
        started_s = self._clock.monotonic()
        self.write_count += 1
        try:
            # An administrator may have made one of them meanwhile.
            self._topics.put_all(
                [topic for name, topic in asked.items() if self._topics.find(name) is None]
            )
        except RmqError as error:
            written.set_exception(error)
            # Whoever asked may have gone.
            written.exception()
        else:
            written.set_result(None)
        self._last_write_s = self._clock.monotonic() - started_s
