"""`rmq quickstart`: a broker, a topic, messages sent and read, and what to try next."""

from __future__ import annotations

import argparse
import sys
import threading
from typing import Final

from broker_core.cli.exit_codes import DONE
from broker_core.client.blocking.consumers import SyncPullConsumer
from broker_core.client.blocking.producers import SyncProducer
from broker_core.client.produce.outgoing_message import OutgoingMessage
from broker_core.embedded.embedded_broker import EmbeddedBroker

EXAMPLES: Final = """\
  rmq quickstart
  rmq quickstart --store data                  keeps the messages"""

TOPIC: Final = "quickstart"
_BODIES: Final = ("order 1", "order 2", "order 3")

_NEXT: Final = """\
Try in another terminal:
  export NAMESRV_ADDR={server}
  rmq consume -t {topic} -o earliest
  seq 10 | rmq produce -t {topic}
  rmq admin topic list
  rmq top

In Spark:
  import pyspark_rmq
  spark = pyspark_rmq.session()
  rows = (spark.read.format("rmq")
          .option("rmq.namesrv.addr", "{server}")
          .option("subscribe", "{topic}").load())
  rows.selectExpr("topic", "partition", "offset", "cast(value as string)").show()
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        metavar="DIR",
        help="where messages are kept (default: a temporary directory, removed at the end)",
    )
    parser.add_argument(
        "--exit", action="store_true", dest="ends", help="end at once instead of serving"
    )


def run(options: argparse.Namespace) -> int:
    """Run the example, then serve until interrupted."""
    with EmbeddedBroker(store=options.store, topics={TOPIC: 2}) as broker:
        server = broker.name_server
        _say(f"1. A broker runs. Clients are configured with its name server: {server}")
        with SyncProducer(server) as producer:
            results = producer.send_many(OutgoingMessage(TOPIC, b.encode()) for b in _BODIES)
        _say(f"2. Sent {len(results)} messages to topic {TOPIC}.")
        _say("3. Read from the beginning:")
        for line in _read(server):
            _say(f"   {line}")
        _say("")
        _say(_NEXT.format(server=server, topic=TOPIC))
        if not options.ends:
            _say("Serving. Ctrl-C ends the broker.")
            # Until an interrupt, which ends the command.
            threading.Event().wait()
    return DONE


def _read(server: str) -> list[str]:
    """Every message, queue by queue."""
    lines = []
    with SyncPullConsumer(server) as consumer:
        for queue in consumer.queues(TOPIC):
            offset, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while offset < end:
                result = consumer.pull(queue, offset)
                lines += [
                    f"queue {queue.queue_id}, offset {message.queue_offset}:"
                    f" {message.body.decode('utf-8', 'replace')}"
                    for message in result.messages
                ]
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
    return lines


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
