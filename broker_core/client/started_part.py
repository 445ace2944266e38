"""Parts of a client that are started and stopped, by hand or with `async with`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

_Part = TypeVar("_Part", bound="StartedPart")


class StartedPart(ABC):
    """`async with part:` starts it, and stops it at the end."""

    @abstractmethod
    async def start(self) -> None:
        """Begin; connects to nobody by itself."""

    @abstractmethod
    async def stop(self) -> None:
        """End, and let go of everything."""

    async def __aenter__(self: _Part) -> _Part:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
