"""Runs each test that asks for `codec` on every backend."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.codec.codec_backends import BACKENDS, backend_name


@pytest.fixture(params=BACKENDS, ids=backend_name)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """A batch codec: the pure twin, and the native one where it is built."""
    module: ModuleType = request.param
    return module
