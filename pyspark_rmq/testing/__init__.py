"""For tests of pipelines: pytest fixtures, `processed`, and a small language for stream tests.

pytest imports this package in every run, also where no test uses it: names are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_rmq.testing.query_wait import NotProcessed, processed
    from pyspark_rmq.testing.stream_test import StreamTest

__all__ = ["NotProcessed", "StreamTest", "processed"]


def __getattr__(name: str) -> Any:
    if name == "StreamTest":
        from pyspark_rmq.testing.stream_test import StreamTest

        return StreamTest
    if name in ("NotProcessed", "processed"):
        from pyspark_rmq.testing import query_wait

        return getattr(query_wait, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
