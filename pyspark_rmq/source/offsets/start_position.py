"""Start and end positions as options give them. Pure; `offset_lookup.py` resolves them.

earliest, latest, committed      the ends of the queue, or the progress of the group
earliest+100, latest-100         that far from an end
-10m                             messages of the last ten minutes
23                               an offset; in JSON -2 is earliest and -1 is latest
{"t":{"broker-a":{"0":23}}}      for each queue; {"t":{"0":23}} for a topic on one broker,
{"t":"latest-100"}               or for a whole topic; queues not named begin at the default
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker_core import MessageQueue, errors
from pyspark_rmq import option_values

_ACCEPTED: Final = (
    "earliest, latest, committed, latest-N, earliest+N, a duration back in time such as -10m, or"
    ' JSON such as {"topic":{"broker-a":{"0":23,"1":-1}}} or {"topic":"earliest"}'
)
_TIMES_ACCEPTED: Final = (
    'JSON such as {"topic":{"broker-a":{"0":1717156800000}}} or {"topic":1717156800000}'
)
_LATEST_IN_JSON: Final = -1
_EARLIEST_IN_JSON: Final = -2
_ANY_BROKER: Final = ""
_WHOLE_TOPIC: Final = -1
_SHOWN_MAX: Final = 20


class Anchor(enum.Enum):
    """Reference point of a position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    OFFSET = "offset"
    TIME = "time"
    AGO = "ago"


class Position(NamedTuple):
    """One place in one queue; `number` is a distance, an offset, a time or a duration."""

    anchor: Anchor
    number: int = 0


EARLIEST: Final = Position(Anchor.EARLIEST)
LATEST: Final = Position(Anchor.LATEST)


class Positions(NamedTuple):
    """A place for every queue."""

    default: Position
    named: Mapping[tuple[str, str, int], Position] = MappingProxyType({})
    """(topic, broker name, queue id) -> place; broker "" and queue -1 mean all."""
    option: str = ""
    """Name of the option, for errors."""
    strict_times: bool = False
    """Whether a time after the last message of a queue is an error rather than its end."""
    text: str = ""
    """Value of the option, for errors."""

    def check_queues(self, queues: Sequence[MessageQueue]) -> None:
        """Raise `InvalidConfig` if a queue is named that is not read."""
        for topic, broker, queue_id in self.named:
            of_topic = [queue for queue in queues if queue.topic == topic]
            if not of_topic:
                raise self.unusable(
                    f"it names topic {topic!r:.140}, which is not read; name topics of subscribe,"
                    " subscribePattern or assign"
                )
            here = [queue for queue in of_topic if broker in (_ANY_BROKER, queue.broker_name)]
            if not here:
                known = ", ".join(sorted({queue.broker_name for queue in of_topic}))
                raise self.unusable(
                    f"it names broker {broker!r:.140}, which has no queue of {topic} that is read;"
                    f" brokers of the topic are {known}"
                )
            found = sorted({queue.queue_id for queue in here})
            if queue_id != _WHOLE_TOPIC and queue_id not in found:
                where = f" on {broker}" if broker else ""
                raise self.unusable(
                    f"it names queue {queue_id} of {topic}{where}, which does not exist or is not"
                    f" read; there are the queues {_shown(found)}"
                )

    def check_end(self, queue: MessageQueue, offset: int, end: int) -> None:
        """Raise `InvalidConfig` for an offset past the end of the queue."""
        if offset > end:
            raise self.unusable(
                f"offset {offset} is past the end of queue {queue.queue_id} of {queue.topic} on"
                f" {queue.broker_name}, which ends at {end}; use at most {end}, or latest (-1)"
            )

    def unusable(self, reason: str) -> errors.InvalidConfig:
        """An error that names the option and its value."""
        return errors.InvalidConfig(self.option, self.text, reason)

    def of(self, queue: MessageQueue) -> Position:
        """The position of a queue: the most specific entry that names it."""
        topic, broker, queue_id = queue
        for key in (
            (topic, broker, queue_id),
            (topic, _ANY_BROKER, queue_id),
            (topic, broker, _WHOLE_TOPIC),
            (topic, _ANY_BROKER, _WHOLE_TOPIC),
        ):
            if key in self.named:
                return self.named[key]
        return self.default


def _shown(queue_ids: Sequence[int]) -> str:
    more = ", …" if len(queue_ids) > _SHOWN_MAX else ""
    return ", ".join(map(str, queue_ids[:_SHOWN_MAX])) + more


def parse_positions(
    option: str, text: str, default: Position, *, is_end: bool = False
) -> Positions:
    """`startingOffsets` or, with `is_end`, `endingOffsets`."""
    if not text.lstrip().startswith("{"):
        return Positions(_parse_word(option, text, is_end), option=option)
    found = option_values.json_object(option, text, _ACCEPTED)
    named = _by_queue(option, text, found, lambda value: _parse_value(option, text, value, is_end))
    return Positions(default, MappingProxyType(named), option, text=text)


def parse_times(option: str, text: str, default: Position, *, strict: bool) -> Positions:
    """`startingOffsetsByTimestamp` or `endingOffsetsByTimestamp`."""
    found = option_values.json_object(option, text, _TIMES_ACCEPTED)

    def time_of(value: object) -> Position:
        if type(value) is int and value >= 0:
            return Position(Anchor.TIME, value)
        if isinstance(value, str):
            return Position(Anchor.TIME, option_values.time_ms(option, value))
        raise errors.InvalidConfig(option, text, _TIMES_ACCEPTED)

    named = _by_queue(option, text, found, time_of)
    return Positions(default, MappingProxyType(named), option, strict, text)


def at_time(option: str, text: str, *, strict: bool) -> Positions:
    """`startingTimestamp` or `endingTimestamp`."""
    time_ms = option_values.time_ms(option, text)
    return Positions(Position(Anchor.TIME, time_ms), option=option, strict_times=strict)


def _parse_word(option: str, text: str, is_end: bool) -> Position:
    word = text.strip().lower()
    found: Position | None = None
    if word in ("earliest", "latest", "committed"):
        found = Position(Anchor(word))
    elif match := re.fullmatch(r"(latest-|earliest\+)([0-9]{1,18})", word):
        anchor = Anchor.LATEST if word.startswith("latest") else Anchor.EARLIEST
        found = Position(anchor, int(match[2]))
    elif re.fullmatch(r"-[0-9]+\s*[a-z]+", word):
        found = Position(Anchor.AGO, option_values.duration_ms(option, word[1:]))
    if found is None:
        raise errors.InvalidConfig(option, text, _ACCEPTED)
    if is_end and (found == EARLIEST or found.anchor is Anchor.COMMITTED):
        raise errors.InvalidConfig(option, text, f"an end cannot be {word}; {_ACCEPTED}")
    return found


def _parse_value(option: str, text: str, value: object, is_end: bool) -> Position:
    if isinstance(value, str):
        return _parse_word(option, value, is_end)
    if type(value) is int:
        if value >= 0:
            return Position(Anchor.OFFSET, value)
        if value == _LATEST_IN_JSON:
            return LATEST
        if value == _EARLIEST_IN_JSON and not is_end:
            return EARLIEST
    raise errors.InvalidConfig(option, text, _ACCEPTED)


def _by_queue(
    option: str, text: str, found: Mapping[str, Any], read: Callable[[object], Position]
) -> dict[tuple[str, str, int], Position]:
    named: dict[tuple[str, str, int], Position] = {}
    for topic, of_topic in found.items():
        if not isinstance(of_topic, dict):
            named[topic, _ANY_BROKER, _WHOLE_TOPIC] = read(of_topic)
            continue
        for broker, of_broker in of_topic.items():
            if isinstance(of_broker, dict):
                for queue_id, value in of_broker.items():
                    named[topic, broker, _queue_id(option, text, queue_id)] = read(value)
            elif broker.isdigit():
                # A topic on one broker: the broker level is left out.
                named[topic, _ANY_BROKER, _queue_id(option, text, broker)] = read(of_broker)
            else:
                named[topic, broker, _WHOLE_TOPIC] = read(of_broker)
    return named


def _queue_id(option: str, text: str, queue_id: str) -> int:
    if not queue_id.isascii() or not queue_id.isdigit() or len(queue_id) > 9:
        raise errors.InvalidConfig(
            option, text, f"queue {queue_id!r:.40} is not a number; {_ACCEPTED}"
        )
    return int(queue_id)
