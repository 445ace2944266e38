"""Which cell of the compatibility page a test decides.

`@certifies(title, client=…, broker=…)` goes above a test; the texts may name its parameters, as in
`broker="{kind}"`. A test may carry several marks, and a cell may be decided by several tests: it
says yes when all of them passed. `conftest.py` collects the results.
"""

from __future__ import annotations

import pytest

from tests.interop.compatibility_table import Cell

_APACHE = "apache-"


def certifies(*titles: str, client: str, broker: str) -> pytest.MarkDecorator:
    """Mark a test with the cells that it decides: these rows, by this client, on this broker."""
    return pytest.mark.certifies(*titles, client=client, broker=broker)


def cells_of(item: pytest.Item) -> list[Cell]:
    """The cells that a test decides, its parameters filled in."""
    parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    cells = []
    for mark in item.iter_markers("certifies"):
        for title in mark.args:
            texts = (title, mark.kwargs["client"], mark.kwargs["broker"])
            title_text, client, broker = (text.format(**parameters) for text in texts)
            cells.append(Cell(title_text, client, broker.removeprefix(_APACHE)))
    return cells
