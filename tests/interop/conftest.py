"""The real store classes as fixtures: one `JavaStore` per version, or a visible skip."""

from __future__ import annotations

from functools import cache

import pytest

from tests.interop.java_store import VERSIONS, JavaStore

# Asserts inside of scenarios say as much as those in tests.
pytest.register_assert_rewrite(
    *(f"tests.interop.client_scenarios_{room}" for room in ("faults", "pull", "push", "send"))
)


@cache
def peer_store(version: str) -> JavaStore:
    """One per version and run, so that what could not be had is asked for only once."""
    return JavaStore(version)


@pytest.fixture(params=VERSIONS)
def java_store(request: pytest.FixtureRequest) -> JavaStore:
    store = peer_store(request.param)
    reason = store.available()
    if reason is not None:
        pytest.skip(reason)
    return store
