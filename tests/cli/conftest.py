"""A broker for the tests that only need some broker."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from broker_core.embedded.embedded_broker import EmbeddedBroker


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses."""
    return re.sub(r"[^a-zA-Z0-9_-]", "-", request.node.name)[:100]
