"""A broker for the tests of a file, and clients that end with the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker, connections
from pyspark_rmq.options import SourceOptions


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture(scope="module")
def new_topic(broker: EmbeddedBroker) -> Callable[..., str]:
    """`new_topic(queue_count)`: the name of a topic that no other test uses."""
    numbers = count()

    def make(queue_count: int = 4) -> str:
        name = f"topic_{next(numbers)}"
        broker.create_topic(name, queue_count)
        return name

    return make


@pytest.fixture(scope="module")
def options_of(broker: EmbeddedBroker) -> Callable[..., SourceOptions]:
    """`options_of(subscribe=…)` of a stream from the broker of the file."""

    def parse(**given: Any) -> SourceOptions:
        texts = {name.replace("__", "."): str(value) for name, value in given.items()}
        return SourceOptions.parse({**broker.options, **texts}).for_stream()

    return parse


@pytest.fixture(autouse=True, scope="module")
def _closed_connections() -> Iterator[None]:
    yield
    connections.close_connections()
