"""The common start and stop of clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

_Self = TypeVar("_Self", bound="Lifecycle")


class Lifecycle(ABC):
    """Started and stopped by hand or by `async with`."""

    @abstractmethod
    async def start(self) -> None:
        """Start; connections are opened on demand."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop and release everything."""

    async def __aenter__(self: _Self) -> _Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()
