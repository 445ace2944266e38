"""A cluster and a topic as HTML for notebooks and as text for terminals. All texts are escaped."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker_core.client.pull.message_display import body_text, html_facts, message_line
from broker_core.client.pull.received_message import ReceivedMessage
from broker_core.errors import RmqError
from broker_core.notebook.figures import BrokerFigures, GroupLag, TopicFigures
from broker_core.notebook.tables import moment

TOPICS_SHOWN: Final = 50
"""The others are counted."""
_ROWS_SHOWN: Final = 64
_QUEUES_DRAWN: Final = 64
_BODY_SHOWN: Final = 200
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_BAR: Final = "#4c78a8"
_BEHIND: Final = "#e45756"


class ClusterPicture(NamedTuple):
    """What is shown of a cluster."""

    title: str
    name_server: str
    brokers: Sequence[BrokerFigures]
    topics: Sequence[TopicFigures]
    more_topics: int
    """Topics that are not among those."""
    lags: Sequence[GroupLag]


class TopicPicture(NamedTuple):
    """What is shown of a topic."""

    figures: TopicFigures
    lags: Sequence[GroupLag]
    messages: Sequence[ReceivedMessage]


def cluster_html(picture: ClusterPicture) -> str:
    """Addresses, disk use, topics with a chart of their queues, groups with their lag."""
    facts = [("name server", picture.name_server)]
    facts += [
        (
            f"broker {broker.name}",
            f"{broker.address}  {broker.version}  log {size_text(broker.log_size)},"
            f" disk {broker.disk_share:.0%} full",
        )
        for broker in picture.brokers
    ]
    parts = [f"<b>{html.escape(picture.title)}</b>", html_facts(facts)]
    if picture.topics:
        most = max(_depths(picture.topics), default=0)
        rows = [
            (
                html.escape(topic.topic),
                str(len(topic.queues)),
                f"{topic.messages:,}",
                f"{topic.rate:,.1f}",
                _queue_bars(topic, most),
                html.escape(_time(topic.newest_ms)),
            )
            for topic in picture.topics
        ]
        heads = ("topic", "queues", "messages", "messages/s", "per queue", "newest (UTC)")
        parts.append(_html_table(heads, rows))
        if picture.more_topics:
            parts.append(f"<i>{_more(picture.more_topics, 'topics')}</i>")
    else:
        parts.append("<i>no topics yet</i>")
    parts += _lag_html(picture.lags)
    return "<div>" + "".join(parts) + "</div>"


def cluster_text(picture: ClusterPicture) -> str:
    """The same for a terminal."""
    lines = [f"{picture.title}, name server {picture.name_server}"]
    lines += [
        f"  broker {broker.name} {broker.address} {broker.version}:"
        f" log {size_text(broker.log_size)}, disk {broker.disk_share:.0%} full"
        for broker in picture.brokers
    ]
    rows = [
        (t.topic, str(len(t.queues)), f"{t.messages:,}", f"{t.rate:,.1f}", _time(t.newest_ms))
        for t in picture.topics
    ]
    heads = ("topic", "queues", "messages", "messages/s", "newest (UTC)")
    lines += _text_table(heads, rows) if rows else ["  no topics yet"]
    if picture.more_topics:
        lines.append(f"  {_more(picture.more_topics, 'topics')}")
    lines += _lag_text(picture.lags)
    return "\n".join(lines)


def topic_html(picture: TopicPicture) -> str:
    """Queues, groups, and the last messages with their bodies."""
    figures = picture.figures
    most = max(_depths([figures]), default=0)
    rows = [
        (
            html.escape(queue.broker_name),
            str(queue.queue_id),
            f"{span.low:,}",
            f"{span.end:,}",
            _bar(span.end - span.low, most),
            html.escape(_time(span.newest_ms)),
        )
        for queue, span in islice(figures.queues.items(), _ROWS_SHOWN)
    ]
    heads = ("broker", "queue", "first", "next", "messages", "newest (UTC)")
    title = f"<b>topic {html.escape(figures.topic)}</b> {figures.messages:,} messages"
    messages = [tuple(map(html.escape, row)) for row in map(_message_row, picture.messages)]
    parts = [title, _html_table(heads, rows)]
    if len(figures.queues) > _ROWS_SHOWN:
        parts.append(f"<i>{_more(len(figures.queues) - _ROWS_SHOWN, 'queues')}</i>")
    parts += _lag_html(picture.lags)
    if messages:
        parts.append(_html_table(_MESSAGE_HEADS, messages))
    else:
        parts.append("<i>no messages yet</i>")
    return "<div>" + "".join(parts) + "</div>"


def topic_text(picture: TopicPicture) -> str:
    """The same for a terminal."""
    figures = picture.figures
    lines = [f"topic {figures.topic}: {figures.messages:,} messages, {figures.rate:,.1f}/s"]
    rows = [
        (queue.broker_name, str(queue.queue_id), f"{span.low:,}", f"{span.end:,}")
        for queue, span in islice(figures.queues.items(), _ROWS_SHOWN)
    ]
    lines += _text_table(("broker", "queue", "first", "next"), rows)
    if len(figures.queues) > _ROWS_SHOWN:
        lines.append(f"  {_more(len(figures.queues) - _ROWS_SHOWN, 'queues')}")
    lines += _lag_text(picture.lags)
    lines += [f"  {message_line(message)}" for message in picture.messages]
    return "\n".join(lines)


def size_text(size: float) -> str:
    """`12.3 MiB`."""
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


_MESSAGE_HEADS: Final = ("queue", "offset", "stored (UTC)", "key", "tags", "body")
_TEXT_HEADS: Final = ("key", "tags", "body")


def _message_row(message: ReceivedMessage) -> tuple[str, ...]:
    try:
        body = body_text(message.body)[0]
    except RmqError as error:
        body = f"({error})"
    return (
        str(message.queue.queue_id),
        str(message.queue_offset),
        _time(message.store_timestamp),
        message.keys,
        message.tags,
        body if len(body) <= _BODY_SHOWN else f"{body[:_BODY_SHOWN]}…",
    )


def _lag_html(lags: Sequence[GroupLag]) -> list[str]:
    found = _lag_rows(lags)
    if not found:
        return []
    most = max(behind for _, _, behind in found)
    rows = [
        (html.escape(group), html.escape(topic), _bar(behind, most, _BEHIND))
        for group, topic, behind in found[:_ROWS_SHOWN]
    ]
    parts = [_html_table(("group", "topic", "lag"), rows)]
    if len(found) > _ROWS_SHOWN:
        parts.append(f"<i>{_more(len(found) - _ROWS_SHOWN, 'groups and topics')}</i>")
    return parts


def _lag_text(lags: Sequence[GroupLag]) -> list[str]:
    found = _lag_rows(lags)
    rows = [(group, topic, f"{behind:,}") for group, topic, behind in found[:_ROWS_SHOWN]]
    lines = _text_table(("group", "topic", "lag"), rows) if rows else []
    if len(found) > _ROWS_SHOWN:
        lines.append(f"  {_more(len(found) - _ROWS_SHOWN, 'groups and topics')}")
    return lines


def _more(count: int, of_what: str) -> str:
    return f"and {count:,} more {of_what}"


def _lag_rows(lags: Iterable[GroupLag]) -> list[tuple[str, str, int]]:
    found: dict[tuple[str, str], int] = {}
    for lag in lags:
        place = lag.group, lag.queue.topic
        found[place] = found.get(place, 0) + lag.progress.behind
    return [(*place, behind) for place, behind in found.items()]


def _depths(topics: Iterable[TopicFigures]) -> list[int]:
    return [span.end - span.low for topic in topics for span in topic.queues.values()]


def _queue_bars(topic: TopicFigures, most: int) -> str:
    """One thin bar per queue, as high as its share of the fullest queue of the page."""
    depths = _depths([topic])[:_QUEUES_DRAWN]
    width, height = 4 * len(depths), 16
    bars = "".join(
        f'<rect x="{4 * place}" y="{height - high}" width="3" height="{high}" fill="{_BAR}"/>'
        for place, high in enumerate(
            max(1, round(height * depth / most)) if most and depth else 0 for depth in depths
        )
    )
    return f'<svg width="{width}" height="{height}" role="img">{bars}</svg>'


def _bar(value: int, most: int, colour: str = _BAR) -> str:
    width = round(80 * value / most) if most else 0
    return (
        f'<svg width="84" height="10" role="img"><rect width="{width}" height="10"'
        f' fill="{colour}"/></svg> {value:,}'
    )


def _html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already. Texts of messages are broken anywhere, other cells never."""
    breaks = [
        "overflow-wrap:anywhere" if name in _TEXT_HEADS else "white-space:nowrap" for name in heads
    ]
    head = "".join(
        f'<th style="text-align:left;white-space:nowrap">{html.escape(name)}</th>' for name in heads
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:left;vertical-align:top;{style}">{cell}</td>'
            for style, cell in zip(breaks, row, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _text_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  " + "  ".join(map(_left, cells, widths)).rstrip() for cells in (heads, *rows)]


_left: Callable[[str, int], str] = str.ljust


def _time(epoch_ms: int) -> str:
    found = moment(epoch_ms)
    return "" if found is None else found.strftime("%Y-%m-%d %H:%M:%S")
