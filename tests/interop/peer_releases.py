"""Which releases of a peer a run takes: `make test` the newest, `make test-interop` all of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

COMPLETE = bool(os.environ.get("RMQ_INTEROP_ALL"))
NEWEST = "5.5.0"
# Bodies of its Java library are read, and ours by it.
PROTOBUF_VERSION = "4.33.1"


def releases(versions: Sequence[str]) -> Sequence[str]:
    """Those of `versions` that this run takes."""
    return versions if COMPLETE else [version for version in versions if version == NEWEST]
