"""The version of the installed package."""

from __future__ import annotations


def installed_version() -> str:
    """The version in the package's metadata; `unknown` for sources that are not installed."""
    # Not needed by most processes.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pyspark-rmq")
    except PackageNotFoundError:
        return "unknown"
