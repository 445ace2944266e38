"""Spares Spark's Python workers most of the garbage collection that follows every task.

A worker that is used again collects everything after each task, some 25 ms for Spark, pandas and
Arrow alone. What is there after the imports stays for good, so it need not be looked at again. And
it keeps the memory of the buffers that the next task will need again.
"""

from __future__ import annotations

import gc
import os
import sys

from broker_core import keep_freed_memory

_frozen_in = 0
# What Spark's workers are forked from.
_DAEMON = "pyspark.daemon"


def freeze_worker() -> None:
    """`freeze_once` where this is one of Spark's workers; a process of the user's is left alone."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == _DAEMON:
        freeze_once()


def freeze_once() -> None:
    """Exempt what there is from now on; once in a process."""
    global _frozen_in
    if _frozen_in != os.getpid():
        gc.collect()
        gc.freeze()
        keep_freed_memory()
        _frozen_in = os.getpid()
