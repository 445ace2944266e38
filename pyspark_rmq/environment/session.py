"""A Spark session whose Python is the one of this program."""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Mapping
from typing import Any

from broker_core import errors, write_log_lines
from pyspark_rmq.environment.interpreters import (
    DRIVER_VARIABLE,
    WORKER_VARIABLE,
    Interpreter,
    environment_problem,
    finder,
    problem_of,
    worker,
)
from pyspark_rmq.spark_settings import SPARK_CONF

_log = logging.getLogger(__name__)

_NAMES = ("rmq", "rocketmq")
_SPARK_MIN = 4
# Sessions that find the source whatever the JVM's environment says.
_registered: weakref.WeakSet[Any] = weakref.WeakSet()


def session(
    app_name: str = "rmq", *, master: str = "", config: Mapping[str, str] | None = None
) -> Any:
    """The Spark session of this program, which finds `.format("rmq")`; created if there is none.

    Makes Spark run the Python of this program. `PYSPARK_PYTHON` is kept if it has the package. A
    new session has the settings of `spark_conf()`, unless `config` has others.
    """
    check_spark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None:
        if problem_of(finder(os.environ)):
            os.environ[DRIVER_VARIABLE] = sys.executable
        if problem_of(worker(os.environ)):
            os.environ[WORKER_VARIABLE] = sys.executable
        builder = SparkSession.builder.appName(app_name)
        if master:
            builder = builder.master(master)
        for name, value in {**SPARK_CONF, **(config or {})}.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    if is_classic(active) and problem_of(_finder_of(active)):
        register(active, "rmq")
    return active


def register(spark: Any, name: str = "") -> None:
    """Register the data source in a session that did not find it, or under another name.

    Without a name, `.format("rmq")` and `.format("rocketmq")` work. A local session then runs the
    Python of this program. Raises `InvalidArgument` if the Python of the workers does not have this
    package.
    """
    check_spark()
    from pyspark_rmq.data_source import registered_as

    ensure_python(spark)
    for one in (name,) if name else _NAMES:
        spark.dataSource.register(registered_as(one))
    if name in ("", "rmq"):
        _registered.add(spark)


def check_spark() -> None:
    """Raise `InvalidArgument` if the installed Spark cannot stream from Python data sources."""
    problem = _spark_problem()
    if problem:
        raise errors.InvalidArgument(problem)


def _spark_problem() -> str:
    import pyspark

    if int(pyspark.__version__.partition(".")[0]) >= _SPARK_MIN:
        return ""
    return errors.explained(
        f"Spark {pyspark.__version__} has no data sources in Python for streams: install Spark 4.0"
        " or newer, with pip install 'pyspark[sql]>=4.0,<4.4'",
        "old-spark",
    )


def ensure_python(spark: Any) -> None:
    """Ensure that a source registered in `spark` can be run.

    A local session is set to run the Python of this program. Raises `InvalidArgument` if the
    workers run elsewhere with a Python that would fail later.
    """
    if not is_classic(spark):
        # A server of Spark Connect chooses its Python, by the environment that it was started with.
        problem = problem_of(worker(os.environ)) if _is_server_here() else ""
        if problem:
            raise errors.InvalidArgument(problem)
        return
    context = spark.sparkContext
    problem = problem_of(Interpreter(context.pythonExec, _worker_setting()))
    if not problem:
        return
    if not context.master.startswith("local"):
        raise errors.InvalidArgument(problem)
    context.pythonExec = sys.executable


def is_classic(spark: Any) -> bool:
    """Whether the session has a JVM of its own."""
    return "connect" not in type(spark).__module__.split(".")


_warned: set[str] = set()


def warn_of_environment() -> None:
    """Log once if Spark, as it runs or would be started now, would not find the package."""
    if "pyspark" not in sys.modules:
        return
    if problem := _spark_problem():
        _warn(problem)
        return
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if SparkSession.getActiveSession() is not None:
        warn_of_session()
    elif not is_remote() or _is_server_here():
        _warn(environment_problem(os.environ))


def warn_of_session() -> None:
    """Log once if the running session, if there is one, does not find the package."""
    if "pyspark" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None or active in _registered:
        return
    if problem := _spark_problem():
        _warn(problem)
    elif not is_classic(active):
        if _is_server_here():
            _warn(environment_problem(os.environ))
    elif active.sparkContext.pythonExec != sys.executable:
        _warn(problem_of(_finder_of(active)))


def _is_server_here() -> bool:
    """Whether `remote("local")` has started the server of Spark Connect in this program."""
    return "SPARK_LOCAL_REMOTE" in os.environ


def _warn(problem: str) -> None:
    if problem and problem not in _warned:
        _warned.add(problem)
        write_log_lines()
        _log.warning("%s", problem)


def _finder_of(spark: Any) -> Interpreter:
    """The Python that the JVM of a session runs, by the environment in which the JVM started."""
    getenv = spark.sparkContext._jvm.System.getenv
    found = {name: getenv(name) for name in (DRIVER_VARIABLE, WORKER_VARIABLE)}
    return finder({name: value for name, value in found.items() if value})


def _worker_setting() -> str:
    return worker(os.environ).setting
