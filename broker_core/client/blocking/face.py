"""Synchronous faces of the asynchronous clients, for threads, scripts and notebooks.

Each call runs on the shared loop thread while the caller waits. So a face works in threads without
an event loop and in those where one is running already. Use it with `with`.

A face declares the methods that it takes over:

    class SyncAdmin(SyncFace[Admin]):
        topics = waits(Admin.topics)

`waits` keeps the signature, the docstring and the types.
"""

from __future__ import annotations

import concurrent.futures
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar

from broker_core.client.blocking.loop_thread import LoopThread, shared_thread
from broker_core.client.connection.config import ClientConfig, parse_name_servers
from broker_core.client.connection.lifecycle import Lifecycle
from broker_core.errors import InvalidArgument

P = ParamSpec("P")
T = TypeVar("T")
Client = TypeVar("Client", bound=Lifecycle)
Face = TypeVar("Face", bound="SyncFace[Any]")

_FUTURE: Final = "asyncio.Future["


class Waiting(Protocol):
    """What `waits` needs of the object it is called on."""

    @property
    def asynchronous(self) -> Any: ...

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T: ...


def waits(method: Callable[Concatenate[Any, P], Awaitable[T]]) -> Callable[Concatenate[Any, P], T]:
    """A method that calls `method` of the asynchronous object on the loop and waits for the result.

    `method` may be a coroutine function, or a function that returns an `asyncio.Future` and must
    run on the loop.
    """
    name = method.__name__

    async def run(target: object, *arguments: Any, **options: Any) -> Any:
        return await getattr(target, name)(*arguments, **options)

    @functools.wraps(method)
    def wait(face: Waiting, /, *arguments: P.args, **options: P.kwargs) -> Any:
        return face.call(run(face.asynchronous, *arguments, **options))

    signature = inspect.signature(method)
    returned = signature.return_annotation
    if isinstance(returned, str) and returned.startswith(_FUTURE):
        signature = signature.replace(return_annotation=returned[len(_FUTURE) : -1])
    wait.__signature__ = signature  # type: ignore[attr-defined]
    wait.__annotations__ = {**method.__annotations__, "return": signature.return_annotation}
    return wait


def client_config(config: ClientConfig | str) -> ClientConfig:
    """The configuration itself, or the default one for a list of name servers."""
    if isinstance(config, str):
        return ClientConfig(parse_name_servers(config))
    if not isinstance(config, ClientConfig):
        raise InvalidArgument(
            f"{config!r:.80} is no cluster: give its name servers as host:port, or a ClientConfig"
        )
    return config


class SyncFace(Generic[Client]):
    """Runs an asynchronous client on the shared loop thread, from `open` to `close`."""

    def __init__(self, config: ClientConfig, asynchronous: Client) -> None:
        self.config = config
        self._asynchronous = asynchronous
        self._thread: LoopThread | None = None

    @property
    def asynchronous(self) -> Client:
        """The asynchronous client, for coroutines that are passed to `call`."""
        return self._asynchronous

    def __enter__(self: Face) -> Face:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Start; `with` does this."""
        if self._thread is not None:
            return
        thread = shared_thread.acquire()
        try:
            thread.call(self._asynchronous.start())
        except BaseException:
            shared_thread.release(thread)
            raise
        self._thread = thread

    def close(self) -> None:
        """Stop. Closing twice is harmless."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                if thread.is_alive:
                    thread.call(self._asynchronous.stop())
            finally:
                shared_thread.release(thread)

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the client's loop and wait for its result."""
        return self._running(coroutine).call(coroutine, timeout_s)

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """As `call`, without waiting."""
        return self._running(coroutine).begin(coroutine)

    def _running(self, coroutine: Coroutine[Any, Any, Any]) -> LoopThread:
        if self._thread is None:
            coroutine.close()
            raise InvalidArgument(f"{type(self).__name__} is not open; use it with `with`")
        return self._thread
