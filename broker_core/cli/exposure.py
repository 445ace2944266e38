"""Which addresses only this machine can reach, and what a server on any other one gives away."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Whether only processes of this machine can connect to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        # A name may resolve to anything.
        return False


def exposed(what: str, where: str, lets: str) -> str:
    """The warning that belongs to a bind beyond this machine."""
    return (
        f"{what} listens on {where}, which other machines can reach; without a password, "
        f"everyone who connects can {lets}"
    )
