"""Signs requests of clients and registering brokers with RocketMQ's signature and with ours.

An Apache server reads the first and ignores the second. Our servers prefer the second, which cannot
be replayed.
"""

from __future__ import annotations

import os
from typing import Final

from broker_core.access.credentials import Credentials
from broker_core.codec.wire.remoting_command import RemotingCommand
from broker_core.codec.wire.request_signature import (
    ACCESS_KEY,
    SECURITY_TOKEN,
    SIGNATURE,
    STRICT_AUTH,
    StrictStamp,
    rocketmq_signature,
    strict_auth,
)
from broker_core.remoting.connection import Connection
from broker_core.runtime.clock import Clock

_SESSION: Final = "access.session"


class _Session:
    """The session id and sequence number of one connection."""

    __slots__ = ("name", "sequence")

    def __init__(self) -> None:
        self.name = os.urandom(16).hex()
        self.sequence = 0


class RequestSigner:
    """Called with each request before it is written; the request has its id."""

    def __init__(self, credentials: Credentials, clock: Clock) -> None:
        self._credentials = credentials
        self._clock = clock

    def __call__(self, connection: Connection, command: RemotingCommand) -> None:
        """Add the fields of both signatures to the command."""
        session: _Session | None = connection.attributes.get(_SESSION)
        if session is None:
            session = connection.attributes[_SESSION] = _Session()
        session.sequence += 1
        credentials = self._credentials
        # A copy: the caller may send the same fields elsewhere.
        ext = command.ext = dict(command.ext)
        # A command that is sent again is signed again.
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = credentials.access_key
        if credentials.security_token:
            ext[SECURITY_TOKEN] = credentials.security_token
        stamp = StrictStamp(self._clock.wall_ms(), session.name, session.sequence)
        ext[STRICT_AUTH] = strict_auth(
            credentials.secret,
            command.code,
            command.opaque,
            command.flag,
            ext,
            command.body,
            stamp,
        )
        ext[SIGNATURE] = rocketmq_signature(credentials.secret, ext, command.body)
