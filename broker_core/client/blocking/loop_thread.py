"""An event loop in its own thread, for callers without a loop or that must not block theirs.

All synchronous faces of a process share one thread. It starts with the first of them and ends with
the last. After a fork the child starts its own, because threads do not survive a fork.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from broker_core.client.blocking.log_lines import write_log_lines
from broker_core.errors import InvalidArgument, RequestTimeout, RmqError

_log = logging.getLogger(__name__)

T = TypeVar("T")


class LoopThread:
    """Runs coroutines; `stop` it at the end."""

    def __init__(self) -> None:
        write_log_lines()
        self.loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="rmq-client", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False after `stop`."""
        return self._thread.is_alive()

    def call(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run a coroutine on the loop and wait. An interrupt or a timeout cancels it."""
        future = self.begin(coroutine)
        try:
            return future.result(timeout_s)
        except (TimeoutError, concurrent.futures.TimeoutError):
            if future.done():
                raise
            future.cancel()
            raise RequestTimeout(f"not done within {timeout_s} s") from None
        except RmqError as error:
            # Re-raised without the frames of the event loop, which do not help the caller.
            _log.debug("a call failed", exc_info=error)
            raise error.with_traceback(None) from None
        except BaseException:
            future.cancel()
            raise

    def begin(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop. The loop's thread must not wait for the future."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise InvalidArgument(
                "a synchronous method was called on the client's own thread, which would deadlock;"
                " use the asynchronous classes there"
            )
        if not self.is_alive:
            coroutine.close()
            raise InvalidArgument("the client's thread has ended; create a new client")
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def stop(self) -> None:
        """Cancel running coroutines and end the thread."""
        if self.is_alive:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        if not self.loop.is_closed():
            self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)


class _SharedThread:
    """The shared thread of this process, with a reference count."""

    def __init__(self) -> None:
        # Users come from any thread.
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._users = 0
        self._process = 0

    def acquire(self) -> LoopThread:
        """Use the thread until `release`."""
        with self._lock:
            if self._process != os.getpid():
                self._thread, self._users, self._process = None, 0, os.getpid()
            if self._thread is None or not self._thread.is_alive:
                self._thread, self._users = LoopThread(), 0
            self._users += 1
            return self._thread

    def release(self, thread: LoopThread) -> None:
        """The last user ends the thread."""
        with self._lock:
            if thread is not self._thread or self._process != os.getpid():
                return
            self._users -= 1
            if self._users:
                return
            self._thread = None
        thread.stop()

    def end(self) -> None:
        """Stop the thread at the end of the process, even if a user did not release it."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and self._process == os.getpid():
            thread.stop()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


shared_thread = _SharedThread()
atexit.register(shared_thread.end)
