"""`watch(query)`: the progress of a streaming query while it runs, in a terminal or a notebook.

Polls the query and installs no listener, so it also works over Spark Connect.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TextIO

from pyspark_rmq.notebook.query_view import QueryView

_CLEAR: Final = "\r\x1b[K"
_WIDTH_DEFAULT: Final = 80
_TRACEBACK: Final = "Traceback (most recent call last):"
# `ValueError: text` at the beginning of a line; its module is left out.
_RAISED: Final = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Z]\w*: \S.*)$", re.MULTILINE)
_TERMINATED: Final = "terminated with exception: "

Show = Callable[[QueryView], None]


class Watch:
    """Watches a query on a thread; `stop` ends the watch, not the query."""

    def __init__(self, query: Any, show: Show, interval_s: float) -> None:
        self._query = query
        self._show = show
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self.view = QueryView(_name(query))
        """The last displayed view."""
        self._thread = threading.Thread(target=self.follow, name="rmq-watch", daemon=True)

    def __repr__(self) -> str:
        return f"<Watch {self.view.line()}>"

    def start(self) -> Watch:
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the watch. Safe to call twice."""
        self._stopped.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until the query, or the watch, has ended; False after `timeout_s`."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def follow(self) -> QueryView:
        """Show the query until it ends; returns the last view."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        self._show(self.view)
        is_over = False
        while not (is_over or self._stopped.is_set()):
            shown = self.view
            try:
                is_over = self._query.awaitTermination(self._interval_s)
                # Several batches may have ended since the last poll.
                for report in self._query.recentProgress:
                    self.view = self.view.with_report(report)
                if is_over:
                    self.view = self.view._replace(state="ended")
            except (PySparkException, Py4JError, OSError) as error:
                # The query failed, or its session is gone.
                is_over = True
                self.view = self.view._replace(state="failed", error=reason_of(error))
            if self.view != shown:
                self._show(self.view)
        return self.view


def watch(
    query: Any, *, background: bool = False, interval_s: float = 0.5, out: TextIO | None = None
) -> Any:
    """Show the progress of a streaming query until it ends.

    One line that is rewritten in a terminal, a line per batch where the output is no terminal, and
    a block of HTML that is updated in a notebook. Returns the last `QueryView`; a query that failed
    is shown as such and raises nothing. An interrupt ends the watch, and the query continues. With
    `background` a `Watch` is returned at once, and the display continues while other cells run.
    `out` is the output to use instead of the notebook or `sys.stdout`.
    """
    if not hasattr(query, "recentProgress"):
        raise TypeError(
            f"watch takes a query, as start() of a stream returns it, not {query!r:.80}"
        )
    watched = Watch(query, _display(out), interval_s)
    if background:
        return watched.start()
    try:
        return watched.follow()
    except KeyboardInterrupt:
        if not (out is None and _in_notebook()):
            # What is printed next does not begin behind the line.
            (out or sys.stdout).write("\n")
        return watched.view


def _display(out: TextIO | None) -> Show:
    if out is None and _in_notebook():
        return _notebook_display()
    return _terminal_display(out or sys.stdout)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _notebook_display() -> Show:
    from IPython.display import display

    class Page:
        """Displayed by IPython as HTML, or as text where HTML is not available."""

        def __init__(self, view: QueryView) -> None:
            self._view = view

        def _repr_html_(self) -> str:
            return self._view.html()

        def __repr__(self) -> str:
            return self._view.line()

    handle: Any = None

    def show(view: QueryView) -> None:
        nonlocal handle
        if handle is None:
            handle = display(Page(view), display_id=True)
        else:
            handle.update(Page(view))

    return show


def _terminal_display(out: TextIO) -> Show:
    is_terminal = out.isatty()

    def show(view: QueryView) -> None:
        if is_terminal and view.is_over:
            out.write(f"{_CLEAR}{view.line()}\n")
        elif is_terminal:
            # A line that the terminal breaks could not be rewritten.
            out.write(f"{_CLEAR}{view.line_within(_terminal_width(out) - 1)}")
        else:
            out.write(f"{view.line()}\n")
        out.flush()

    return show


def _name(query: Any) -> str:
    return str(query.name or query.id)


def _terminal_width(out: TextIO) -> int:
    try:
        # Some terminals say 0.
        return os.get_terminal_size(out.fileno()).columns or _WIDTH_DEFAULT
    except OSError:
        return _WIDTH_DEFAULT


def reason_of(error: BaseException) -> str:
    """The line of Spark's text that says why: the error below the traceback, if it has one."""
    text = str(error)
    below = _RAISED.search(text, text.find(_TRACEBACK)) if _TRACEBACK in text else None
    if below is not None:
        return below[1]
    first = next((line.strip() for line in text.splitlines() if line.strip()), repr(error))
    return first.rpartition(_TERMINATED)[2]
