"""Work side by side: results by name, one piece alone, and nothing that hangs for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.interop.side_by_side import SideBySide
from tests.shared_servers import shared_servers


@pytest.fixture
def runs() -> Iterator[SideBySide]:
    found = SideBySide(2, "test", limit_s=20.0)
    yield found
    found.close()


def fails() -> None:
    raise KeyError("as told")


def test_each_piece_tells_how_it_ended(runs: SideBySide) -> None:
    runs.start("good", lambda: None)
    runs.start("bad", fails)
    assert runs.failure("good") is None
    assert isinstance(runs.failure("bad"), KeyError)


def test_work_alone_begins_when_all_others_are_done(runs: SideBySide) -> None:
    done: list[str] = []
    gate = threading.Event()

    def wait_for_the_second() -> None:
        gate.wait(20)
        done.append("first")

    def let_the_first_go() -> None:
        gate.set()
        done.append("second")

    runs.start("first", wait_for_the_second)
    runs.start("second", let_the_first_go)
    assert runs.failure_alone("last", lambda: done.append("last")) is None
    assert done[-1] == "last" and len(done) == 3


def test_what_hangs_is_named() -> None:
    gate = threading.Event()
    runs = SideBySide(1, "test", limit_s=0.05)

    def hang() -> None:
        gate.wait(60)

    runs.start("stuck", hang)
    runs.start("behind", lambda: None)
    with pytest.raises(AssertionError, match=r"still running after .* s: stuck"):
        runs.failure("stuck")
    with pytest.raises(AssertionError, match="stuck; behind"):
        runs.failure_alone("last", lambda: None)
    with pytest.raises(AssertionError, match="stuck"):
        runs.close()
    gate.set()
    assert runs.failure("stuck") is None


def test_nobody_waits_for_what_never_began() -> None:
    gate = threading.Event()
    runs = SideBySide(1, "test", limit_s=60.0)
    runs.start("first", lambda: gate.wait(60))
    runs.start("behind", lambda: None)
    runs.cancel()
    gate.set()
    runs.close()
    assert runs.failure("first") is None


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("tests/interop/test_a.py::test_one", "tests/interop/test_a.py"),
        ("tests/interop/test_a.py::test_two[4.9.7]", "tests/interop/test_a.py 4.9.7"),
        ("tests/interop/test_a.py::test_3[ours-Java-5.5.0-x]", "tests/interop/test_a.py ours"),
        ("tests/interop/test_a.py::test_4[5.5.0-ours-x]", "tests/interop/test_a.py 5.5.0 ours"),
        ("tests/interop/test_a.py::T::test_5[a-5.5.0]", "tests/interop/test_a.py"),
    ],
)
def test_what_shares_servers_goes_to_one_process(name: str, place: str) -> None:
    assert shared_servers(name) == place
