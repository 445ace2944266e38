"""Continuous integration fails when a peer was skipped or the native code was not built."""

from __future__ import annotations

import functools
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import fetched_peers
from tests.interop.maven_artifacts import PeerUnavailable
from tests.required_peers import complaint

ROOT = Path(__file__).resolve().parent.parent
# Read when this module is imported: a fixture takes the variable away from the tests.
IS_REQUIRED = os.environ.get("RMQ_NATIVE") == "require"
CI = {"RMQ_REQUIRE_PEERS": "1", "RMQ_NATIVE": "require"}
PEER_TEST = "tests/interop/test_x.py::test_x"
SKIPPED = {
    "test": 'import pytest\n\ndef test_peer():\n    pytest.skip("{reason}")\n',
    "module": 'import pytest\n\npytest.skip("{reason}", allow_module_level=True)\n',
}
REASONS = {
    "interop": "no Go client: go is not installed",
    "codec": "the native codec is not built",
}


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (PEER_TEST, "no Java client 5.5.0: mvn is not installed"),
        ("tests/spark/test_x.py", "could not import 'pyspark'"),
        ("tests/codec/test_x.py::test_x", "the native codec is not built"),
        ("tests/runtime/test_x.py", "the native part is not built"),
        (
            "tests/codec/native/test_sanitizers.py::test_x",
            "the compiler has no address sanitizer (libasan.so)",
        ),
        (
            "tests/codec/native/test_sanitizers.py::test_x",
            "no compiler to build the native code with: no gcc",
        ),
    ],
)
def test_a_skip_for_a_missing_peer_is_a_failure_where_it_is_required(
    test: str, reason: str
) -> None:
    found = complaint(test, f"Skipped: {reason}", CI)
    assert found is not None
    assert reason in found
    assert complaint(test, f"Skipped: {reason}", {}) is None
    assert complaint(test, f"Skipped: {reason}", {"RMQ_REQUIRE_PEERS": "0"}) is None


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        (PEER_TEST, "in the complete run: RMQ_INTEROP_ALL=1"),
        ("tests/spark/test_x.py::test_x", "minutes; RMQ_CRASH_LONG=1 runs it"),
        ("tests/crash/test_x.py::test_x", "F06 needs a small tmpfs"),
    ],
)
def test_what_belongs_to_a_larger_run_or_machine_may_be_skipped(test: str, reason: str) -> None:
    assert complaint(test, f"Skipped: {reason}", CI) is None


@pytest.fixture(scope="module")
def run_with_skips(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], str]:
    """`run_with_skips(required)`: the report of a run with this project's conftest."""
    root = tmp_path_factory.mktemp("skips")
    for folder, reason in REASONS.items():
        (root / "tests" / folder).mkdir(parents=True)
        for at, text in SKIPPED.items():
            path = root / "tests" / folder / f"test_{folder}_{at}.py"
            path.write_text(text.format(reason=reason), encoding="utf-8")
    (root / "conftest.py").write_text(
        "from tests.conftest import pytest_make_collect_report, pytest_runtest_makereport\n",
        encoding="utf-8",
    )

    @functools.cache
    def run(required: bool) -> str:
        kept = {key: value for key, value in os.environ.items() if key not in CI}
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
        command += ["--rootdir", str(root), "-c", os.devnull, str(root)]
        command += ["--import-mode=importlib", "--continue-on-collection-errors"]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False, timeout=600,
            env={**kept, **(CI if required else {}), "PYTHONPATH": str(ROOT), "COLUMNS": "300"},
        )  # fmt: skip
        assert done.returncode in ({1, 2} if required else {0, 5}), done.stdout
        return done.stdout

    return run


@pytest.mark.parametrize("folder", sorted(REASONS))
@pytest.mark.parametrize("at", sorted(SKIPPED))
def test_a_run_with_such_a_skip_fails(
    run_with_skips: Callable[[bool], str], folder: str, at: str
) -> None:
    failed = {"test": "FAILED", "module": "ERROR"}[at]
    name = f"tests/{folder}/test_{folder}_{at}.py"
    line = rf"{failed} {name}\S* - .*{REASONS[folder]}"
    assert re.search(line, run_with_skips(True)), run_with_skips(True)
    assert not re.search(rf"(FAILED|ERROR) {name}", run_with_skips(False))
    assert re.search(rf"SKIPPED \[\d\] {name}.*{REASONS[folder]}", run_with_skips(False))


def test_fetching_fails_where_peers_are_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise PeerUnavailable("no network")

    monkeypatch.setattr(fetched_peers, "_peers", lambda: iter([("Go client 2", missing)]))
    monkeypatch.delenv("RMQ_REQUIRE_PEERS", raising=False)
    assert fetched_peers.main() == 0
    monkeypatch.setenv("RMQ_REQUIRE_PEERS", "1")
    assert fetched_peers.main() == 1
    assert "Go client 2 cannot be had: no network" in capsys.readouterr().err


@pytest.mark.skipif(not IS_REQUIRED, reason="RMQ_NATIVE=require is not set")
def test_the_native_code_is_built() -> None:
    importlib.import_module("broker_core.codec.native._native")
    if sys.platform == "linux":
        importlib.import_module("broker_core.runtime._system_lane")


def test_continuous_integration_requires_both() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert 'export RMQ_REQUIRE_PEERS="${RMQ_REQUIRE_PEERS:-1}"' in script
    assert 'export RMQ_NATIVE="${RMQ_NATIVE:-require}"' in script
