"""Which codec backend is picked."""

from __future__ import annotations

import pytest

from broker_core.codec import record_columns, record_loops
from broker_core.codec.record_columns import _choose_backend, codec_backend
from tests.codec.codec_backends import BACKENDS


def test_python_can_be_forced() -> None:
    assert _choose_backend("python") == ("python", record_loops)


def test_native_is_preferred_where_it_is_built() -> None:
    assert _choose_backend("") == (("python", "native")[len(BACKENDS) - 1], BACKENDS[-1])


def test_native_can_be_demanded() -> None:
    if len(BACKENDS) == 2:
        assert _choose_backend("native") == ("native", BACKENDS[1])
    else:
        with pytest.raises(ImportError):
            _choose_backend("native")


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(ImportError, match="RMQ_CODEC"):
        _choose_backend("rust")


def test_every_function_of_the_twin_is_there() -> None:
    assert codec_backend() in ("native", "python")
    for name in record_loops.__all__:
        for backend in BACKENDS:
            assert callable(getattr(backend, name))
        assert name in record_columns.__all__
