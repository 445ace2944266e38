"""Paths that stay inside a store."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.errors import InvalidArgument
from broker_core.storage.files.store_paths import path_components


def test_components() -> None:
    assert path_components("") == ()
    assert path_components("commitlog/00000000000000000000") == (
        "commitlog",
        "00000000000000000000",
    )
    assert path_components("a/...") == ("a", "...")


@pytest.mark.parametrize("path", ["/a", "a/", "a//b", ".", "a/..", "../a", "a/./b", "a\0b", None])
def test_whatever_could_lead_out_is_refused(path: Any) -> None:
    with pytest.raises(InvalidArgument, match="path"):
        path_components(path)
