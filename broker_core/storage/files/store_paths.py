"""Paths inside a store: relative, with `/`, and never leading out of it."""

from __future__ import annotations

from broker_core.errors import InvalidArgument


def path_components(path: str) -> tuple[str, ...]:
    """The parts of a path below the root; `InvalidArgument` for anything that could leave it."""
    if not isinstance(path, str):
        raise InvalidArgument(f"path {path!r}: not a string")
    if path == "":
        return ()
    components = tuple(path.split("/"))
    for component in components:
        if component in ("", ".", "..") or "\0" in component:
            raise InvalidArgument(f"path {path!r}: component {component!r} is not a name")
    return components
