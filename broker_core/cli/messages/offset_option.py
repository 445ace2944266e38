"""Where `rmq consume` begins to read a queue: the values of `-o`, and their offsets."""

from __future__ import annotations

import datetime
import enum
import re
from typing import Any, Final, NamedTuple, Protocol

ACCEPTED: Final = "earliest, latest, an offset, -N (the last N of each queue) or @TIME"

_WHOLE_NUMBER = re.compile(r"[0-9]{1,18}")
# As `offset reset` takes it; a number alone would be an offset.
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*")


class PositionKind(enum.Enum):
    """Meaning of the number of a position."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    FROM_END = "from end"
    TIME = "time"


# The words of Spark and of `offset reset`, and those of other tools.
WORDS: Final = {
    "earliest": PositionKind.BEGINNING,
    "beginning": PositionKind.BEGINNING,
    "latest": PositionKind.END,
    "end": PositionKind.END,
    "now": PositionKind.END,
}


class StartPosition(NamedTuple):
    """A place in a queue, before the queue is known. `number` is milliseconds for a time."""

    kind: PositionKind
    number: int = 0


class QueueEnds(Protocol):
    """Interface for the ends of a queue; the pull consumer implements it."""

    async def min_offset(self, queue: Any) -> int:
        """The oldest message that is still there."""

    async def max_offset(self, queue: Any) -> int:
        """The offset that the next message will get."""

    async def offset_by_time(self, queue: Any, time_ms: int) -> int:
        """The first message stored then or later."""


def parse_position(text: str) -> StartPosition:
    """Read `-o`; ValueError says what is accepted."""
    if text.lower() in WORDS:
        return StartPosition(WORDS[text.lower()])
    if text.startswith("@") or _DATE.fullmatch(text):
        return StartPosition(PositionKind.TIME, _time_ms(text.removeprefix("@")))
    if text.startswith("-") and _WHOLE_NUMBER.fullmatch(text[1:]):
        return StartPosition(PositionKind.FROM_END, int(text[1:]))
    if _WHOLE_NUMBER.fullmatch(text):
        return StartPosition(PositionKind.OFFSET, int(text))
    raise ValueError(f"{text!r:.60} is not {ACCEPTED}")


def _time_ms(text: str) -> int:
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    try:
        # Before 3.11 the Z of UTC is not understood.
        moment = datetime.datetime.fromisoformat(re.sub("[zZ]$", "+00:00", text))
    except ValueError:
        raise ValueError(
            f"@{text:.60}: TIME is epoch milliseconds or like 2024-05-31T14:00:00 (local time, or "
            "with +00:00)"
        ) from None
    return round(moment.timestamp() * 1000)


async def first_offset(position: StartPosition, ends: QueueEnds, queue: Any) -> int:
    """The offset of `queue` that `position` means: always one that the queue has, or its end."""
    kind, number = position
    if kind is PositionKind.BEGINNING:
        return await ends.min_offset(queue)
    if kind is PositionKind.END:
        return await ends.max_offset(queue)
    if kind is PositionKind.TIME:
        return await ends.offset_by_time(queue, number)
    least, most = await ends.min_offset(queue), await ends.max_offset(queue)
    wanted = number if kind is PositionKind.OFFSET else most - number
    return min(max(wanted, least), most)
