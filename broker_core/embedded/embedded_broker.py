"""`EmbeddedBroker`: a whole RocketMQ cluster of one broker for a test, a script or a notebook.

    with EmbeddedBroker(topics={"orders": 4}) as broker:
        broker.produce("orders", ["a", "b"])
        spark.read.format("rmq").options(**broker.options).load("orders")

    broker = EmbeddedBroker.shared("demo")  # in a notebook: found again when the cell is run again

Owns one process and one temporary directory; both are gone at the end, also when the owner is
killed. Not for use from several threads at once.
"""

from __future__ import annotations

import os
import signal
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from broker_core.broker.settings.unknown_properties import refuse_unknown
from broker_core.embedded.broker_process import BrokerProcess
from broker_core.embedded.directory_removal import remove_tree
from broker_core.embedded.faults import Faults
from broker_core.embedded.held_ports import HeldPorts, checked_ports
from broker_core.embedded.named_broker import LOG_FILE, STORE_DIR, ForeignProcess
from broker_core.embedded.shared_brokers import (
    BrokerNote,
    check_name,
    find_own,
    left_behind,
    new_note,
    note_path,
    open_elsewhere,
    write_note,
)
from broker_core.errors import EmbeddedBrokerFailed, InvalidArgument, explained
from broker_core.notebook.actions import ClusterActions
from broker_core.notebook.topic_counts import topic_counts
from broker_core.runtime.clock import Clock, SystemClock

_STOP_TIMEOUT_S: Final = 10.0

# Of this process: name -> broker of `shared`, path of a kept store -> broker that has it open.
_by_name: dict[str, EmbeddedBroker] = {}
_by_store: weakref.WeakValueDictionary[Path, EmbeddedBroker] = weakref.WeakValueDictionary()


class EmbeddedBroker(ClusterActions):
    """A name server and a broker in a process of their own, for notebooks and tests.

    Starts with `start` or `with`; a stopped one may be started again.

    `store`, or `store_dir`, is a directory to keep; without it messages are gone at the end.
    `sync_flush` makes an acknowledged message survive a power cut and not only a crash. `topics`
    maps names to numbers of queues; others are created by the first send. `properties` are
    settings of the broker under Apache's names. A port of 0 is any free one; a restart keeps the
    ports of the first start. `test_clock` gives the broker a clock that `advance_clock` moves.
    """

    def __init__(
        self,
        *,
        store: str | os.PathLike[str] | None = None,
        store_dir: str | os.PathLike[str] | None = None,
        topics: Mapping[str, int] | None = None,
        sync_flush: bool = False,
        properties: Mapping[str, str] | None = None,
        name_server_port: int = 0,
        broker_port: int = 0,
        test_clock: bool = False,
        start_timeout_s: float = 120.0,
        clock: Clock | None = None,
    ) -> None:
        if store is not None and store_dir is not None and Path(store) != Path(store_dir):
            raise InvalidArgument(f"store={store} and store_dir={store_dir} are the same setting")
        kept = store_dir if store is None else store
        self._kept_store = Path(kept).absolute() if kept is not None else None
        self._topics = topic_counts(topics)
        refuse_unknown(properties or {}, "properties")
        self._properties = {str(key): str(value) for key, value in (properties or {}).items()}
        self._properties.setdefault("flushDiskType", "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH")
        self._ports = checked_ports(name_server_port=name_server_port, broker_port=broker_port)
        self._start_timeout_s = start_timeout_s
        self._has_test_clock = test_clock
        self._ahead_s = 0.0
        self._clock: Clock = clock or SystemClock()
        self._held = _Held()
        self._addresses: tuple[str, str] | None = None
        self._shared_name = ""
        # Called when the object is garbage, and at the end of the interpreter.
        self._last_resort = weakref.finalize(self, _Held.release, self._held)

    def __enter__(self) -> EmbeddedBroker:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @classmethod
    def shared(cls, name: str, **settings: Any) -> EmbeddedBroker:
        """The running broker of this process with this name; the first call starts it.

        `settings` are those of the constructor. A later call adds topics that are missing; another
        difference raises `InvalidArgument`. It runs until `stop` or the end of the process.
        Readers and writers find it by the option `rmq.embedded`, or start it: then this returns
        the one that they have started.
        """
        name = check_name(name)
        broker = _by_name.get(name)
        # A forked child has the object, but does not own the process.
        if broker is not None and not broker._held.is_mine:
            broker = None
        if broker is None or not broker.is_running:
            note = find_own(name)
            if note is not None:
                broker = cls._joined(note)
            elif broker is None or (broker._held.directory is None and settings):
                # Also after `stop`: the settings may differ now. The ports stay.
                ports = (0, 0) if broker is None else broker._ports
                broker = cls(**settings)
                broker._ports = broker._ports[0] or ports[0], broker._ports[1] or ports[1]
            broker._shared_name = name
        broker._adopt(settings)
        broker.start()
        _by_name[name] = broker
        return broker

    @classmethod
    def _joined(cls, note: BrokerNote) -> EmbeddedBroker:
        """A running broker that Spark has started for the option `rmq.embedded`."""
        broker = cls()
        broker._held.process = ForeignProcess(note)
        broker._held.directory = Path(note.directory)
        broker._held.note = note_path(note)
        broker._addresses = note.name_server, note.address
        broker._ports = _port(note.name_server), _port(note.address)
        return broker

    # IPython looks for it in the class that has `__repr__`.
    _repr_pretty_ = ClusterActions._repr_pretty_

    @staticmethod
    def shared_brokers() -> list[EmbeddedBroker]:
        """The shared brokers of this process, running or not."""
        return [broker for broker in _by_name.values() if broker._held.is_mine]

    def __repr__(self) -> str:
        state = self.name_server if self.is_running else "not running"
        name = f" {self._shared_name!r}" if self._shared_name else ""
        return f"<EmbeddedBroker{name} {state}>"

    # State

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        process = self._held.process
        return process is not None and process.exit_code is None

    @property
    def name_server(self) -> str:
        """`127.0.0.1:port`: what clients are configured with."""
        return self._started()[0]

    @property
    def address(self) -> str:
        """`127.0.0.1:port` of the broker itself."""
        return self._started()[1]

    @property
    def process_id(self) -> int:
        if self._held.process is None:
            raise EmbeddedBrokerFailed("the broker is not running; call start()")
        return self._held.process.process_id

    @property
    def store_dir(self) -> Path:
        """Where the messages are; a temporary one is gone after `stop`."""
        return self._kept_store or self._directory() / STORE_DIR

    @property
    def log_path(self) -> Path:
        """The broker's log; removed after `stop`."""
        return self._directory() / LOG_FILE

    def checkpoint(self, name: str = "query") -> str:
        """A directory for the checkpoint of a query, kept and removed together with the store.

        A checkpoint refers to offsets of this store and cannot be used with another one.
        """
        if not name or name in (".", "..") or "/" in name:
            raise InvalidArgument(f"checkpoint {name!r:.80} is not the name of a directory")
        kept = self._kept_store
        top = kept.with_name(f"{kept.name}-checkpoints") if kept else self._directory()
        return str(top / name if kept else top / "checkpoints" / name)

    @property
    def faults(self) -> Faults:
        """Faults for tests: kills, network cuts, a slow or full disk and others."""
        return Faults(
            lambda: self._held.process,
            self._has_faults,
            lambda: self.client_config,
            start=self.start,
            restart=self.restart,
        )

    @property
    def wall_ms(self) -> int:
        """Epoch milliseconds by the broker's clock, which `advance_clock` moves."""
        return self._clock.wall_ms() + int(self._ahead_s * 1000)

    @property
    def is_clock_advanced(self) -> bool:
        """Whether the broker's clock is ahead of the machine's."""
        return self._ahead_s > 0

    # Actions

    def start(self) -> EmbeddedBroker:
        """Start and wait until clients can be served.

        Raises `EmbeddedBrokerFailed` with the reason, or with the end of the broker's log.
        """
        for check in self.before_start:
            check()
        if self.is_running:
            return self
        self._check_store()
        self._held.let_go()
        # Held from now on, so that no other process gets them while the broker is down.
        name_server_port, broker_port = map(self._held.ports.hold, self._ports)
        self._ports = name_server_port, broker_port
        if self._kept_store is not None:
            self._make_parent(self._kept_store)
            self._await_predecessor(self._kept_store)
        process = BrokerProcess(self._arguments(), self._directory(), self.log_path)
        self._held.process = process
        try:
            name_server, address = process.wait_ready(self._clock, self._start_timeout_s)
        except BaseException:
            self._held.release()
            raise
        self._addresses = name_server, address
        if self._kept_store is not None:
            _by_store[self._kept_store.resolve()] = self
        if self._shared_name:
            note = new_note(
                self._shared_name,
                self._addresses,
                self._directory(),
                process.process_id,
                os.getpid(),
                self._kept_store,
            )
            self._held.keep_note(write_note(note))
        return self

    def stop(self) -> None:
        """End the broker cleanly and remove what is temporary. Safe to call twice."""
        self._held.release()
        if self._kept_store is None:
            self._ahead_s = 0.0

    def kill(self) -> None:
        """End the process at once, as a crash would; the store stays for `start`."""
        if self._held.process is not None:
            self._held.process.kill()
            self._held.process = None

    def advance_clock(self, seconds: float) -> None:
        """Move the broker's clock forward, and wait until all messages that are due are delivered.

        Delays, timers, retries, transaction checks and retention follow the clock; connections and
        heartbeats do not. Needs `test_clock=True`. The clock never goes back as long as the store
        is the same, also after a kill or a restart.
        """
        process = self._held.process
        if process is None or not self.is_running:
            raise EmbeddedBrokerFailed("the broker is not running; call start()")
        answer = process.request({"do": "advance", "seconds": seconds}, self._start_timeout_s)
        self._ahead_s += seconds
        if answer["is_late"]:
            raise EmbeddedBrokerFailed(
                f"messages that are due are not delivered; the broker's log: {self.log_path}"
            )

    def restart(self) -> EmbeddedBroker:
        """Stop if running, and start again with the same store and ports."""
        self._held.let_go()
        return self.start()

    # Inside

    def _make_parent(self, store: Path) -> None:
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self._held.release()
            raise EmbeddedBrokerFailed(
                f"store='{store}' cannot be used: directory {store.parent} cannot be made:"
                f" {error.strerror}"
            ) from None

    def _check_store(self) -> None:
        """The store must not be open in another object of this process, or in another program."""
        if self._kept_store is None:
            return
        note = open_elsewhere(self._kept_store.resolve())
        if note is not None:
            text = (
                f"store={self._kept_store} is open in process {note.owner_id}, by its shared broker"
                f" {note.name!r}: stop() it there, use another directory, or use that broker:"
                f' Cluster("{note.name_server}")'
            )
            raise EmbeddedBrokerFailed(explained(text, "store-is-open"))
        other = _by_store.get(self._kept_store.resolve())
        if other is None or other is self or not other.is_running or not other._held.is_mine:
            return
        if other._shared_name:
            way = f'EmbeddedBroker.shared("{other._shared_name}") returns it'
        else:
            way = (
                "stop() that one first, or start it as EmbeddedBroker.shared(name, store=…), which"
                " returns the running one when a cell is run again"
            )
        text = f"store={self._kept_store} is open in this process already, by {other!r}: {way}"
        raise EmbeddedBrokerFailed(explained(text, "store-is-open"))

    def _await_predecessor(self, store: Path) -> None:
        """Wait for the broker of a kernel that was killed, which ends by itself."""
        note = left_behind(store.resolve())
        if note is None:
            return
        # Imported here: most programs that import this module log nothing.
        import logging

        logging.getLogger(__name__).warning(
            "store=%s: the broker of process %d, which has ended, still has it open: waiting until"
            " that broker (process %d) has ended, too",
            store,
            note.owner_id,
            note.process_id,
        )
        predecessor = ForeignProcess(note)
        # It cannot end while it is paused.
        predecessor.send_signal(signal.SIGCONT)
        predecessor.wait(self._start_timeout_s)

    def _adopt(self, settings: Mapping[str, Any]) -> None:
        """Compare the settings of another call of `shared` with these; add missing topics."""
        asked = type(self)(**settings)
        kept = asked._kept_store.resolve() if asked._kept_store is not None else None
        mine = self._kept_store.resolve() if self._kept_store is not None else None
        for name, differs in (
            ("store", kept is not None and kept != mine),
            ("sync_flush or properties", asked._differs(self, settings)),
            ("test_clock", asked._has_test_clock and not self._has_test_clock),
            ("name_server_port", asked._ports[0] not in (0, self._ports[0])),
            ("broker_port", asked._ports[1] not in (0, self._ports[1])),
        ):
            if differs:
                raise InvalidArgument(
                    f"{self!r} runs with another {name}: stop() it before it can have a new one, or"
                    " share a broker under another name"
                )
        missing = {n: count for n, count in asked._topics.items() if n not in self._topics}
        self._topics.update(missing)
        if self.is_running and missing:
            self.create_topics(missing)

    def _differs(self, running: EmbeddedBroker, settings: Mapping[str, Any]) -> bool:
        if not {"properties", "sync_flush"} & settings.keys():
            return False
        return self._properties != running._properties

    @property
    def _has_faults(self) -> bool:
        """A broker that other machines can reach has none."""
        return self._properties.get("allowRemote", "false").lower() != "true"

    def _started(self) -> tuple[str, str]:
        if self._addresses is None:
            raise EmbeddedBrokerFailed("the broker was not started; use `with` or start()")
        return self._addresses

    def _directory(self) -> Path:
        if self._held.directory is None:
            self._held.directory = Path(tempfile.mkdtemp(prefix="rmq-"))
        return self._held.directory

    def _arguments(self) -> list[str]:
        name_server_port, broker_port = self._ports
        arguments = [
            "--exit-with-parent",
            f"--port={name_server_port}",
            f"--broker-port={broker_port}",
            f"--store={self.store_dir}",
            f"--remove-when-orphaned={self._directory()}",
        ]
        if self._has_faults:
            arguments.append("--test-control")
        if self._has_test_clock:
            arguments.append(f"--test-clock={self._ahead_s}")
        arguments += [f"--topic={name}:{count}" for name, count in self._topics.items()]
        arguments += [f"--property={key}={value}" for key, value in self._properties.items()]
        return arguments


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


class _Held:
    """Resources that end with an `EmbeddedBroker`; a forked child does not own them."""

    def __init__(self) -> None:
        self.process: BrokerProcess | ForeignProcess | None = None
        self.directory: Path | None = None
        self.ports = HeldPorts()
        self.note: Path | None = None
        """Tells other processes of a shared broker."""
        self._owner_id = os.getpid()

    @property
    def is_mine(self) -> bool:
        """False in a forked child."""
        return os.getpid() == self._owner_id

    def release(self) -> None:
        """Release everything."""
        self.keep_note(None)
        self.let_go()
        self.ports.release()
        if self.directory is not None and self.is_mine:
            remove_tree(self.directory)
        self.directory = None

    def keep_note(self, note: Path | None) -> None:
        """Remove the note that there was, unless it is the same file."""
        former, self.note = self.note, note
        if former is not None and former != note and self.is_mine:
            former.unlink(missing_ok=True)

    def let_go(self) -> None:
        """End the process, if there is one. Its note stays: it may be started again."""
        process, self.process = self.process, None
        if process is not None and self.is_mine:
            process.stop(_STOP_TIMEOUT_S)
