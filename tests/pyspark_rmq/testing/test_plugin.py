"""The cost of the plugin for test runs that do not use it; its fixtures are tested with Spark."""

from __future__ import annotations

import subprocess
import sys

_PROBE = """
import sys
import pytest
before = set(sys.modules)
import pyspark_rmq.testing.plugin
added = set(sys.modules) - before
heavy = {"asyncio", "broker_core", "chispa", "numpy", "pandas", "pyarrow", "pyspark"} & added
assert not heavy, heavy
from pyspark_rmq.testing import NotProcessed, StreamTest, processed
import pyspark_rmq.testing
assert set(pyspark_rmq.testing.__all__) <= set(dir(pyspark_rmq.testing))
"""


def test_a_run_without_the_fixtures_loads_only_the_plugin() -> None:
    subprocess.run([sys.executable, "-c", _PROBE], check=True, timeout=300)
