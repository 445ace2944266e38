"""A streaming query for display: one line of text, or HTML. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pyspark_rmq.progress import lag_of, total_of

_BAR_WIDTH: Final = 20
_NARROW_BAR_WIDTHS: Final = (10, 0)
_ERROR_MAX: Final = 300


class QueryView(NamedTuple):
    """The displayed values of a query after one of its batches."""

    name: str
    batch_id: int = -1
    """-1 before the first batch."""
    rows: int = 0
    """Rows since the watch began."""
    rows_in: float = 0.0
    """Rows per second that arrive."""
    rows_out: float = 0.0
    """Rows per second that are processed."""
    batch_ms: int = 0
    """Time of the last batch."""
    lag: Mapping[str, int] | None = None
    """Unread rows by topic; None if the query reads no rmq."""
    state: str = "starting"
    """starting, running, ended or failed."""
    error: str = ""
    reported_at: str = ""
    """Time of the last report."""

    @property
    def share(self) -> float | None:
        """Processed share of the available rows; None if unknown."""
        if self.lag is None:
            return None
        left = sum(self.lag.values())
        return self.rows / (self.rows + left) if left else 1.0

    @property
    def is_over(self) -> bool:
        return self.state in ("ended", "failed")

    def with_report(self, report: Mapping[str, Any] | None) -> QueryView:
        """The view after a progress report of Spark; unchanged for a report that it includes."""
        if not isinstance(report, Mapping):
            return self
        batch_id = _whole(report.get("batchId"), -1)
        # A batch may be reported twice: idle, and with its rows.
        reported_at = str(report.get("timestamp") or "")
        if reported_at and reported_at <= self.reported_at:
            return self
        is_new = bool(reported_at) or batch_id != self.batch_id
        lag = lag_of(report)
        by_topic: dict[str, int] | None = None
        if lag is not None:
            by_topic = {}
            for queue in lag.queues:
                by_topic[queue.topic] = by_topic.get(queue.topic, 0) + queue.rows
        durations = report.get("durationMs")
        return self._replace(
            name=str(report.get("name") or self.name),
            batch_id=batch_id,
            rows=self.rows + (int(total_of(report, "numInputRows")) if is_new else 0),
            rows_in=total_of(report, "inputRowsPerSecond"),
            rows_out=total_of(report, "processedRowsPerSecond"),
            batch_ms=_whole(
                durations.get("triggerExecution") if isinstance(durations, Mapping) else None, 0
            ),
            lag=by_topic,
            state="running",
            reported_at=reported_at,
        )

    def line(self) -> str:
        """One line of text."""
        return self._line(_BAR_WIDTH, " rows/s")

    def line_within(self, width: int) -> str:
        """One line of at most `width` characters: with a shorter bar, or cut."""
        line = self.line()
        for bar_width in _NARROW_BAR_WIDTHS:
            if len(line) > width:
                line = self._line(bar_width, "/s")
        return line if len(line) <= width else f"{line[: width - 1]}…"

    def _line(self, bar_width: int, unit: str) -> str:
        if self.batch_id < 0:
            return f"{self.name}: {self._end() or 'waiting for the first batch'}"
        parts = [f"{self.name} batch {self.batch_id}"]
        if self.share is not None and bar_width:
            full = round(self.share * bar_width)
            parts.append(f"[{'█' * full}{'·' * (bar_width - full)}]")
        parts.append(
            f"{self.rows:,} rows, {self.rows_in:,.0f}{unit} in, {self.rows_out:,.0f}{unit} out,"
            f" {self.batch_ms:,} ms"
        )
        if self.lag is not None:
            lag = ", ".join(f"{topic} {rows:,}" for topic, rows in sorted(self.lag.items()))
            parts.append(f"lag {lag or '0'}")
        if self._end():
            parts.append(self._end())
        return " ".join(parts)

    def html(self) -> str:
        """A small block for notebooks; texts are escaped."""
        if self.batch_id < 0:
            return f"<div><b>{html.escape(self.line())}</b></div>"
        bar = (
            "" if self.share is None else f'<progress value="{self.share:.3f}" max="1"></progress>'
        )
        lag = "".join(
            f"<tr><td>lag of {html.escape(topic)}</td><td>{rows:,}</td></tr>"
            for topic, rows in sorted((self.lag or {}).items())
        )
        facts = (
            ("rows", f"{self.rows:,}"),
            ("rows/s in", f"{self.rows_in:,.0f}"),
            ("rows/s out", f"{self.rows_out:,.0f}"),
            ("last batch", f"{self.batch_ms:,} ms"),
        )
        rows = "".join(f"<tr><td>{name}</td><td>{text}</td></tr>" for name, text in facts)
        end = html.escape(self._end() or self.state)
        return (
            f"<div><b>{html.escape(self.name)}</b> batch {self.batch_id} {bar} {end}"
            f"<table>{rows}{lag}</table></div>"
        )

    def _end(self) -> str:
        if self.state == "failed":
            return f"failed: {self.error[:_ERROR_MAX]}"
        return "ended" if self.state == "ended" else ""


def _whole(value: object, default: int) -> int:
    return int(value) if isinstance(value, int | float) else default
