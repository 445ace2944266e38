"""Where a scenario of `mqadmin` works: a tool, a cluster, a topic and a group of its own."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import NamedTuple

from tests.interop.mqadmin import Mqadmin, Printed
from tests.interop.observer import Observer
from tests.interop.server_processes import BROKER_NAME, BrokerCluster

POLL_S = 0.2
# A held pull, ten seconds to let go of a queue, and a rebalance come one after another at worst.
PATIENCE_S = 80.0
# The tool gives a broker three seconds; a message that took longer is stored within these.
TIMED_OUT_S = 10.0
CLUSTER = "DefaultCluster"

MESSAGE_ID = re.compile(r"\b[0-9A-F]{32,56}\b")


class Desk(NamedTuple):
    """Where a scenario works."""

    tool: Mqadmin
    cluster: BrokerCluster
    name: str

    @property
    def is_new(self) -> bool:
        """Whether the tool is of 5.x."""
        return self.tool.version.startswith("5")

    def topic(self, queues: int = 2) -> str:
        """A new topic of this scenario's name."""
        self.tool.ok("updateTopic", "-c", CLUSTER, "-t", self.name, "-r", f"{queues}",
                     "-w", f"{queues}")  # fmt: skip
        # A broker that is busy answers before the name servers know.
        until(lambda: self.route("readQueueNums") == [queues], f"a route to {self.name}")
        return self.name

    def send(self, body: str, queue: int, *more: str) -> str:
        """A message that is in its queue; the id that its producer gave it."""
        words = ("-t", self.name, "-p", body, "-b", BROKER_NAME, "-i", f"{queue}", *more)
        observer = Observer(self.cluster.address, BROKER_NAME)
        place = observer.offsets(self.name, queue)["max"]
        said = ""

        def is_stored() -> bool:
            return bool(observer.offsets(self.name, queue)["max"] == place + 1)

        def is_sent() -> bool:
            nonlocal said
            if not is_stored():
                said = self.tool.run("sendMessage", *words).text
            return "SEND_OK" in said or has_come(is_stored, TIMED_OUT_S)

        until(is_sent, f"{body} is sent: {said[-2000:]}")
        until(is_stored, f"{body} is in its queue")
        [message] = observer.pull(self.name, queue, place, 1)["messages"]
        unique = str(message["properties"]["UNIQ_KEY"])
        # A tool that waited too long for the answer cannot tell the id.
        assert "SEND_OK" not in said or MESSAGE_ID.findall(said)[-1] == unique
        return unique

    def consumer(self) -> str:
        """A Java consumer of the topic that is known to the broker; its client id."""
        self.tool.start_consumer(self.name, self.name)
        found: list[str] = []

        def is_known() -> bool:
            printed = self.tool.run("consumerConnection", "-g", self.name)
            found[:] = re.findall(rf"^(\S+@consumer-{self.name}\S*)", printed.text, re.MULTILINE)
            return bool(found)

        until(is_known, "the consumer is connected")
        return found[0]

    def progress(self) -> dict[int, tuple[int, int]]:
        """Queue → broker and consumer offset."""
        printed = self.tool.run("consumerProgress", "-g", self.name)
        # Or who waits for a broker that cannot be asked waits in vain.
        assert "not supported" not in printed.text, printed.text[-2000:]
        rows = [row for row in printed.rows if row[:2] == [self.name, BROKER_NAME]]
        return {int(row[2]): (int(row[3]), int(row[4])) for row in rows}

    def route(self, *names: str) -> list[int]:
        """Numbers of the only broker in the topic's route, if any; it is not quite JSON."""
        text = self.tool.run("topicRoute", "-t", self.name).text
        found = [re.findall(rf'"{name}":\s*(\d+)', text)[:1] for name in names]
        return [int(number) for one in found for number in one]

    def offsets(self, printed: Printed) -> dict[int, int]:
        """Queue → offset, as the commands that move groups print it."""
        return {int(row[1]): int(row[2]) for row in printed.rows if row[:1] == [BROKER_NAME]}


def has_come(reached: Callable[[], bool], limit_s: float) -> bool:
    """Poll a condition that has no notification; whether it became true in time."""
    pause = threading.Event()
    for _ in range(int(limit_s / POLL_S)):
        if reached():
            return True
        pause.wait(POLL_S)
    return False


def until(reached: Callable[[], bool], what: str) -> None:
    """Wait for what must come."""
    assert has_come(reached, PATIENCE_S), f"not reached: {what}"
