"""One Spark session and one broker for all tests here; without PySpark they are skipped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pyspark_rmq import EmbeddedBroker
from tests.patient_client import PATIENT_BROKER
from tests.spark.spark_session import new_session

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent
# Older releases of Spark are fetched and run by `make test-spark-versions`.
collect_ignore = (
    [] if os.environ.get("RMQ_INTEROP_ALL") else ["test_kafka_job.py", "test_versions.py"]
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # PySpark warns about the newest pandas, and leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import sources that tests define.
    os.environ["PYTHONPATH"] = os.pathsep.join((str(PROJECT), os.environ.get("PYTHONPATH", "")))
    session = new_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def rmq_spark(spark: Any) -> Any:
    """The plugin's fixtures share the session of the other tests."""
    return spark


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties=PATIENT_BROKER) as running:
        yield running


@pytest.fixture(scope="session")
def new_topic(broker: EmbeddedBroker) -> Callable[..., str]:
    """`new_topic(queue_count)`: the name of a topic that no other test uses."""
    numbers = count()

    def make(queue_count: int = 4) -> str:
        name = f"topic_{next(numbers)}"
        broker.create_topic(name, queue_count)
        return name

    return make
