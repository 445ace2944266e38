"""Spark Structured Streaming and batch reads of RocketMQ topics: `.format("rmq")`.

Spark finds the data source once the package is installed. Importing this module connects nothing;
Spark and Arrow are imported when a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker_core import Cluster, EmbeddedBroker, EmbeddedCluster
    from pyspark_rmq.data_source import RmqDataSource as DefaultSource
    from pyspark_rmq.environment.session import register, session
    from pyspark_rmq.notebook.live_progress import watch

__all__ = [
    "Cluster",
    "DefaultSource",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "register",
    "session",
    "spark_conf",
    "watch",
]


def spark_conf() -> dict[str, str]:
    """Settings for `SparkSession.builder.config(map=…)` that speed up every Python data source.

    Set them before the application starts. `docs/source.md` describes them, by release of Spark.
    Logs a warning if Spark would be started with a Python that does not have this package.
    """
    from pyspark_rmq.environment.session import warn_of_environment
    from pyspark_rmq.spark_settings import SPARK_CONF

    warn_of_environment()
    return dict(SPARK_CONF)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext pyspark_rmq` makes `%rmq` known."""
    from pyspark_rmq.notebook.magics import load

    load(shell)


def __getattr__(name: str) -> Any:
    # Spark looks for DefaultSource in every package called pyspark_….
    if name == "DefaultSource":
        from pyspark_rmq.data_source import RmqDataSource

        return RmqDataSource
    if name in ("Cluster", "EmbeddedBroker", "EmbeddedCluster"):
        import broker_core
        from pyspark_rmq.environment.session import warn_of_environment, warn_of_session

        found = getattr(broker_core, name)
        if warn_of_environment not in found.before_options:
            found.before_options.append(warn_of_environment)
            found.before_start.append(warn_of_session)
        return found
    if name in ("register", "session"):
        from pyspark_rmq.environment import session

        return getattr(session, name)
    if name == "__version__":
        import broker_core

        return broker_core.__version__
    if name == "watch":
        from pyspark_rmq.notebook.live_progress import watch

        return watch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
