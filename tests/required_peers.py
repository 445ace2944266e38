"""What a run must not skip: `RMQ_REQUIRE_PEERS=1` and `RMQ_NATIVE=require`, as `.ci/run` sets them.

A contributor without Java, Go or a compiler still runs everything else; the reasons are listed at
the end. In continuous integration such a skip would hide a test for ever, so it is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

REQUIRE_PEERS: Final = "RMQ_REQUIRE_PEERS"
REQUIRE_NATIVE: Final = "RMQ_NATIVE"
_PEER_FOLDERS: Final = ("tests/interop/", "tests/spark/")
# Skips on purpose: tests of a larger run name the variable that asks for it.
_LARGER_RUNS: Final = ("RMQ_INTEROP_ALL", "RMQ_CRASH_LONG")
_BY_DESIGN: Final = ("has no record checksum",)
# The extensions, and their copies under the sanitizers.
_NOT_BUILT: Final = ("not built", "no compiler to build the native code", "address sanitizer")


def peers_are_required(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a peer that is missing fails the run."""
    return environment.get(REQUIRE_PEERS, "") not in {"", "0"}


def complaint(test: str, reason: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """Why a skip is a failure, or None.

    `test` is the node id of a test, or the path of a module that skipped itself.
    """
    is_native = any(text in reason for text in _NOT_BUILT)
    if environment.get(REQUIRE_NATIVE) == "require" and is_native:
        return f"skipped although {REQUIRE_NATIVE}=require: {reason}"
    expected = any(text in reason for text in (*_LARGER_RUNS, *_BY_DESIGN))
    if peers_are_required(environment) and test.startswith(_PEER_FOLDERS) and not expected:
        return f"skipped although {REQUIRE_PEERS} is set: {reason}"
    return None
