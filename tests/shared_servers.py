"""Which tests of a run of several processes go to the same one.

Tests of one file that need the same kind and version of servers share these: in two processes they
would start them twice, and all scenarios that run on them.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import Final

from xdist.scheduler import LoadScopeScheduling

_SERVERS: Final = re.compile(r"ours|\d+\.\d+\.\d+")


class SharedServersScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """By the names of tests, which is all that the process knows that hands them out."""

    def _split_scope(self, nodeid: str) -> str:
        return shared_servers(nodeid)


def shared_servers(name: str) -> str:
    """The file of a test and the servers that its parameters begin with.

    >>> shared_servers("tests/interop/test_mqadmin.py::test_mqadmin[4.9.7-ours-topics]")
    'tests/interop/test_mqadmin.py 4.9.7 ours'
    """
    path, _, rest = name.partition("::")
    parameters = rest.partition("[")[2].rstrip("]").split("-")
    return " ".join([path, *takewhile(_SERVERS.fullmatch, parameters)])
