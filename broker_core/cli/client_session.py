"""Runs the coroutine of a client command; a failure becomes one line on stderr."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from broker_core.cli.event_loop import run_on_loop
from broker_core.cli.exit_codes import CommandFailed
from broker_core.errors import (
    ConnectionLost,
    NameServersSilent,
    TlsFailed,
    TopicNotExist,
    explained,
)

_SIGNAL_CODE = 128


def run_client(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of `work`, or that of the signal that ended it."""
    return run_on_loop(_until_signalled(work))


async def _until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """A signal cancels `work`, so that it can unregister at the brokers."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    received: list[int] = []

    def signalled(number: int) -> None:
        received.append(number)
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(each)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return _SIGNAL_CODE + received[0]


@contextlib.contextmanager
def cluster_errors(topic: str, servers: Sequence[str]) -> Iterator[None]:
    """Turn client errors into `CommandFailed`, with texts that name options of the command line."""
    try:
        yield
    except TopicNotExist:
        text = (
            f"topic {topic!r:.140} is not known to name server {';'.join(servers):.200}: rmq admin"
            " topic list shows those that are"
        )
        raise CommandFailed(explained(text, "topic-not-found")) from None
    except ConnectionLost as error:
        raise CommandFailed(connection_failure(error)) from None


def connection_failure(error: ConnectionLost) -> str:
    """The text of an error, with the way on where it is known."""
    if isinstance(error, TlsFailed) or (isinstance(error, NameServersSilent) and error.tls_failed):
        return explained(
            f"{error}. Compare --tls, --tls-ca and --tls-cert, or those of the profile, with the"
            " TLS settings of the server",
            "tls-mismatch",
        )
    if type(error) is ConnectionLost and error.is_unreachable:
        return explained(
            f"{error}. Start the broker or, if this machine reaches it at another address, set its"
            " brokerIP1",
            "broker-not-reached",
        )
    if not isinstance(error, NameServersSilent):
        return str(error)
    return explained(
        f"{error}. Give the address of a name server with -n or --profile, or start one with a"
        " broker: rmq standalone",
        "name-servers-not-reached",
    )
