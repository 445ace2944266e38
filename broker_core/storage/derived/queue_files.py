"""A bounded set of open consume-queue files, so that many queues need few descriptors."""

from __future__ import annotations

from collections import OrderedDict

from broker_core.storage.files.file_system import FileSystem, StoreFile


class QueueFiles:
    """Opens on demand and closes the least recently used. Owner thread only."""

    def __init__(self, file_system: FileSystem, open_max: int = 256) -> None:
        self.file_system = file_system
        self._open: OrderedDict[str, StoreFile] = OrderedDict()
        self._open_max = open_max

    def get(self, path: str) -> StoreFile:
        """The open file; FileNotFoundError when there is none on disk."""
        file = self._open.get(path)
        if file is None:
            file = self._keep(path, self.file_system.open(path))
        else:
            self._open.move_to_end(path)
        return file

    def create(self, path: str, size: int) -> StoreFile:
        """A new file of `size` zero bytes; a leftover with that name is replaced."""
        self.forget(path)
        try:
            file = self.file_system.create(path)
        except FileExistsError:
            self.file_system.unlink(path)
            file = self.file_system.create(path)
        self._keep(path, file)
        file.resize(size)
        return file

    def forget(self, path: str) -> None:
        """Close the file if it is open, before it is removed or cut."""
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close everything."""
        while self._open:
            self._open.popitem()[1].close()

    def _keep(self, path: str, file: StoreFile) -> StoreFile:
        self._open[path] = file
        if len(self._open) > self._open_max:
            self._open.popitem(last=False)[1].close()
        return file
