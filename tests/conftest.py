"""Shared by all tests: the environment, the async runner, tables in the closing report."""

from __future__ import annotations

import asyncio
import asyncio.constants
import gc
import os
import signal
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from tests.heavy_files import weight
from tests.required_peers import complaint
from tests.spark.class_archive import use_archive

T = TypeVar("T")

# A client that waits for the default of 3 s gives up, or sends again, when the machine pauses.
_PATIENCE_MS = 60_000

# Folders whose brokers are not about their limits. A store that is stopped for a second in the
# middle of a put refuses the next one as busy; after five seconds a sync counts as too late.
_PATIENT_STORES = frozenset({"cli", "client", "embedded", "interop", "pyspark_rmq", "spark"})

# Settings that a run may be given from outside; any other RMQ_ variable of the caller's shell
# would make a test pass here and fail elsewhere.
_KEPT_VARIABLES = frozenset({"RMQ_CODEC", "RMQ_CRASH_LONG", "RMQ_PEER_CACHE"})

# As the caller gave it; the fixture below takes most of these variables away.
_ENVIRONMENT = dict(os.environ)

_SUMMARY_LINES = pytest.StashKey[list[str]]()

# Frames that asyncio's debug mode keeps of the caller, for each callback, future and task. With
# its 10 that takes a fifth of the CPU of tests with servers; two still name the line.
_DEBUG_FRAMES = 2

# Shared two-core machines pause at will: slowness is measured by benchmarks, not by deadlines.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("default"), max_examples=2_000)
# A change is judged by the same examples every time; new ones are sought by hand and by night.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
# What hangs is ended (see pyproject.toml); the nightly sizes and the complete matrix take longer.
if os.environ.get("RMQ_CRASH_LONG") or os.environ.get("RMQ_INTEROP_ALL"):
    os.environ.setdefault("PYTEST_TIMEOUT", "7200")
_long_or_default = "long" if os.environ.get("RMQ_CRASH_LONG") else "default"
settings.load_profile("ci" if os.environ.get("CI") else _long_or_default)


class _FailuresAtOnce:
    """Names a test when it fails: a complete run takes a quarter of an hour."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and reporter is not None:
            reporter.write_line(f" {report.when} failed: {report.nodeid}")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SUMMARY_LINES] = []
    asyncio.constants.DEBUG_STACK_DEPTH = _DEBUG_FRAMES
    # A shell that starts a run with `&` has it ignore interrupts, and all processes inherit that:
    # servers that are tested with SIGINT would go on for ever.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))
    # What is imported and collected stays until the end: nothing of it needs to be looked through.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_sessionfinish(session: pytest.Session) -> None:
    # One of several processes (make test uses one for each core): hand the lines over.
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["summary_lines"] = list(session.config.stash[_SUMMARY_LINES])


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long begin; the order within a file and among the others stays."""
    items.sort(key=lambda item: -weight(item.nodeid))
    if any(item.get_closest_marker("spark") for item in items):
        use_archive()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail_if_required(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _fail_if_required(report)
    return report


def _fail_if_required(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Continuous integration must not skip what it can run."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    found = complaint(report.nodeid, text, _ENVIRONMENT)
    if found is not None:
        report.outcome = "failed"
        report.longrepr = found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """In a run of several processes what shares servers stays together (`make test-interop`)."""
    if config.getvalue("dist") != "loadscope":
        return None
    from tests.shared_servers import SharedServersScheduling

    return SharedServersScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    lines = getattr(node, "workeroutput", {}).get("summary_lines", ())
    node.config.stash[_SUMMARY_LINES] += lines


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash[_SUMMARY_LINES]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def summary_lines(pytestconfig: pytest.Config) -> list[str]:
    """Lines added here are printed at the end of the run, also without `-s`."""
    return pytestconfig.stash[_SUMMARY_LINES]


@pytest.fixture(scope="session")
def long_run() -> bool:
    """Whether the nightly sizes were asked for (`make test-crash LONG=1`)."""
    return bool(os.environ.get("RMQ_CRASH_LONG"))


@pytest.fixture(autouse=True, scope="session")
def _rmq_defaults() -> Iterator[None]:
    dropped = {k for k in os.environ if k.startswith("RMQ_") and k not in _KEPT_VARIABLES}
    with pytest.MonkeyPatch.context() as patch:
        for name in dropped:
            patch.delenv(name)
        # Profiles of the caller would send commands to other clusters.
        patch.setenv("RMQ_CONFIG_DIR", os.devnull + "/none")
        yield


@pytest.fixture(autouse=True, scope="module")
def _patient_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    """Clients, and most brokers, of this process get longer timeouts, unless a test sets them.

    A module whose servers stop answering on purpose says how long by `PATIENCE_MS`.
    """
    # Tests of the settings see them as they are.
    if request.path.parent.name == "tests":
        yield
        return
    from broker_core.client.connection.config import ClientConfig
    from broker_core.config import RemotingLimits, StoreConfig

    wait_ms = getattr(request.module, "PATIENCE_MS", _PATIENCE_MS)
    with pytest.MonkeyPatch.context() as patch:
        _make_patient(patch, ClientConfig, "request_timeout_ms", wait_ms)
        _make_patient(patch, RemotingLimits, "connect_timeout_ms", wait_ms)
        if _PATIENT_STORES & set(request.path.parts):
            _make_patient(patch, StoreConfig, "page_cache_busy_timeout_ms", _PATIENCE_MS)
            _make_patient(patch, StoreConfig, "sync_flush_timeout_ms", _PATIENCE_MS)
        yield


def _make_patient(patch: pytest.MonkeyPatch, kind: Any, name: str, wait_ms: int) -> None:
    """Objects of `kind` with the default of a field get another one."""
    default, check = getattr(kind, name), kind.__post_init__

    def wait_longer(made: Any) -> None:
        if getattr(made, name) == default:
            object.__setattr__(made, name, wait_ms)
        check(made)

    patch.setattr(kind, "__post_init__", wait_longer)


@pytest.fixture
def run_async() -> Callable[..., Any]:
    """`run_async(coroutine, limit_s=300.0)`: its result, on a fresh loop in debug mode.

    A background task that is still running afterwards fails the test.
    """

    def run(coroutine: Coroutine[Any, Any, T], limit_s: float = 300.0) -> T:
        async def limited() -> T:
            result = await asyncio.wait_for(coroutine, limit_s)
            # One turn of the loop lets tasks that were cancelled just now finish.
            await asyncio.sleep(0)
            left = asyncio.all_tasks() - {asyncio.current_task()}
            assert not left, f"still running: {sorted(task.get_name() for task in left)}"
            return result

        return asyncio.run(limited(), debug=True)

    return run
