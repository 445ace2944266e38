"""Settings of Spark that make the transfer between its JVM and its Python workers faster.

Every row of a Python data source crosses that connection. The settings belong to the application:
they work if they are given before its first session is created, not later and not per query.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SPARK_CONF: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Buffers at both ends of the connection; Spark's default is 64 KiB.
        "spark.buffer.size": str(1 << 20),
        # A Unix domain socket instead of TCP over loopback. Since 4.1; 4.0 ignores it.
        "spark.python.unix.domain.socket.enabled": "true",
    }
)
