"""For tests of pipelines: pytest fixtures, `processed`, and a small language for stream tests."""

from pyspark_rmq.testing.processed import NotProcessed, processed
from pyspark_rmq.testing.stream_test import StreamTest

__all__ = ["NotProcessed", "StreamTest", "processed"]
