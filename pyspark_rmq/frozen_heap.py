"""Reduces the garbage collection that Spark's Python workers run after every task.

A reused worker collects all objects after each task; Spark, pandas and Arrow alone take about
25 ms. Objects that exist after the imports are permanent, so they are exempted. Freed buffers are
kept for the next task.
"""

from __future__ import annotations

import gc
import os
import sys

from broker_core import keep_freed_memory

_frozen_in = 0
# Spark forks its workers from this module.
_DAEMON = "pyspark.daemon"


def freeze_worker() -> None:
    """`freeze_once` if this process is a Spark worker, not a process of the user."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        freeze_once()


def freeze_once() -> None:
    """Exempt all present objects from garbage collection; once per process."""
    global _frozen_in
    if _frozen_in != os.getpid():
        gc.collect()
        gc.freeze()
        keep_freed_memory()
        _frozen_in = os.getpid()
