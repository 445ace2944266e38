"""A reader that the user provides."""

from __future__ import annotations

import sys

import pytest

from broker_core import errors
from pyspark_rmq.prove.reader_command import read_by_command


def test_a_reader_that_fails_shows_nothing() -> None:
    options = {"rmq.namesrv.addr": "127.0.0.1:9"}
    script = f"{sys.executable} -c 'import sys; print(*sys.argv[1:], sep=chr(10))'"
    assert read_by_command(script, options, "T") == ["127.0.0.1:9", "T"]
    for broken in (f"{sys.executable} -c 'raise SystemExit(4)'", "/does/not/exist"):
        with pytest.raises(errors.UnexpectedAnswer, match="--reader"):
            read_by_command(broken, options, "T")
