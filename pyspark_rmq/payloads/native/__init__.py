"""Compiled decoders of whole batches. Without them, and for what they refuse, Python decodes.

`RMQ_CODEC=python` forces Python; with `RMQ_CODEC=native` a missing native module is an ImportError.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final

_MODULE: Final = "pyspark_rmq.payloads.native._columns"


def chosen_decoder(choice: str) -> Any:
    """The class `ColumnDecoder`, or None, for a value of `RMQ_CODEC`."""
    if choice == "python":
        return None
    try:
        return import_module(_MODULE).ColumnDecoder
    except ImportError:
        if choice == "native":
            raise
        return None


ColumnDecoder: Final = chosen_decoder(os.environ.get("RMQ_CODEC", ""))
