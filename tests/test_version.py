"""Both packages tell the version that is installed."""

from __future__ import annotations

from importlib.metadata import version

import broker_core
import pyspark_rmq
from broker_core.version import installed_version


def test_version() -> None:
    assert broker_core.__version__ == pyspark_rmq.__version__ == installed_version()
    assert installed_version() == version("pyspark-rmq")
