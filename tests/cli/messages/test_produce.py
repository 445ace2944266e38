"""`rmq produce` and `rmq consume` against a real broker, as a shell uses them."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker_core.embedded.embedded_broker import EmbeddedBroker
from broker_core.runtime.clock import SystemClock
from tests.cli.rmq_process import LIMIT_S, Ended, command, environment, run_rmq


class Shell:
    """Both commands, for one topic of one broker."""

    def __init__(self, broker: EmbeddedBroker, topic: str) -> None:
        self.options = ("-n", broker.name_server, "-t", topic)

    def produce(self, given: bytes, *arguments: str) -> Ended:
        return run_rmq("produce", *self.options, *arguments, given=given)

    def consume(self, *arguments: str) -> Ended:
        return run_rmq("consume", *self.options, *arguments)

    def lines(self, *arguments: str) -> list[bytes]:
        """Sorted: queues are mixed."""
        ended = self.consume("-e", *arguments)
        assert (ended.code, ended.errors) == (0, "")
        return sorted(ended.output.splitlines())

    def begin(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(*arguments[:1], *self.options, *arguments[1:]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )


@pytest.fixture
def shell(broker: EmbeddedBroker, topic: str) -> Shell:
    return Shell(broker, topic)


@pytest.fixture
def begun(shell: Shell) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are ended with the test."""
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate(timeout=LIMIT_S)


# Producing


def test_each_line_is_a_message(shell: Shell) -> None:
    ended = shell.produce(b"a\nb\r\n\nlast")
    assert (ended.code, ended.output) == (0, b"")
    assert re.fullmatch(r"rmq produce: 4 acknowledged in \d+\.\d\d s\n", ended.errors)
    assert shell.lines("-f", "<%s>\\n") == [b"<>", b"<a>", b"<b>", b"<last>"]


def test_no_input_is_no_message(broker: EmbeddedBroker) -> None:
    ended = run_rmq("produce", "-n", broker.name_server, "-t", "never")
    assert ended.code == 0
    assert "0 acknowledged" in ended.errors


@pytest.mark.parametrize("batch", ["1", "7", "100000"])
def test_many_lines_in_order(shell: Shell, batch: str) -> None:
    given = b"".join(b"%d\n" % number for number in range(5_000))
    assert shell.produce(given, "--batch", batch, "-q") == Ended(0, b"", "")
    lines = shell.consume("-e", "-f", "%p %s\\n").output.splitlines()
    by_queue: dict[bytes, list[int]] = {}
    for line in lines:
        queue, _, body = line.partition(b" ")
        by_queue.setdefault(queue, []).append(int(body))
    assert sorted(itertools.chain(*by_queue.values())) == list(range(5_000))
    assert all(bodies == sorted(bodies) for bodies in by_queue.values())


def test_keys_tags_and_properties(shell: Shell) -> None:
    options = ("-K", "::", "--tags", "new", "--property", "a=b", "--property", "c=d=e")
    assert shell.produce(b"k1::one\ntwo\n::three\nk4::x::y\n", *options).code == 0
    shown = shell.lines("-f", "%s|%k|%g\\n")
    assert shown == [b"one|k1|new", b"three||new", b"two||new", b"x::y|k4|new"]
    properties = shell.lines("-f", "%h\\n")[0]
    assert b"a=b" in properties
    assert b"c=d=e" in properties


def test_a_line_that_is_too_long_is_named(shell: Shell) -> None:
    ended = shell.produce(b"ok\n" + b"x" * (5 << 20) + b"\nlater\n")
    assert ended.code == 1
    assert ended.error_lines[-1].startswith("rmq produce: error: line 2: ")
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize("words", [("--property", "TAGS=x"), ("--property", "a=")])
def test_properties_that_cannot_be_set(shell: Shell, words: tuple[str, ...]) -> None:
    ended = shell.produce(b"a\n", *words)
    assert ended.code == 2
    assert "Traceback" not in ended.errors


def test_a_bad_topic_is_misuse(broker: EmbeddedBroker) -> None:
    ended = run_rmq("produce", "-n", broker.name_server, "-t", "a/b", given=b"x\n")
    assert ended.code == 2
    assert "a/b" in ended.error_lines[-1]


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_no_name_server(name: str) -> None:
    ended = run_rmq(name, "-n", "127.0.0.1:9", "-t", "orders", given=b"x\n")
    assert (ended.code, ended.output) == (1, b"")
    assert "none of the name servers 127.0.0.1:9 answered" in ended.error_lines[-1]
    assert "Traceback" not in ended.errors


def test_the_name_server_of_the_environment(broker: EmbeddedBroker, topic: str) -> None:
    ended = run_rmq("produce", "-t", topic, given=b"x\n", NAMESRV_ADDR=broker.name_server)
    assert ended.code == 0


def test_an_interrupted_producer_ends_at_once(
    shell: Shell, begun: list[subprocess.Popen[bytes]]
) -> None:
    shell.produce(b"first\n")
    producer = shell.begin("produce")
    begun.append(producer)
    assert producer.stdin is not None
    producer.stdin.write(b"typed\n")
    producer.stdin.flush()
    # It waits for more input; what was typed is sent all the same.
    assert sorted(shell.consume("-c", "2").output.splitlines()) == [b"first", b"typed"]
    producer.send_signal(signal.SIGINT)
    assert producer.wait(LIMIT_S) == 130
    assert b"Traceback" not in producer.communicate()[1]


def test_a_broker_that_is_killed_is_an_error(topic: str) -> None:
    with EmbeddedBroker(topics={topic: 1}) as mortal:
        shell = Shell(mortal, topic)
        process = shell.begin("produce")
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert shell.consume("-c", "1").output == b"one\n"
        mortal.kill()
        process.stdin.write(b"two\n")
        errors = process.communicate(timeout=LIMIT_S)[1].decode()
    assert process.returncode == 1
    assert "1 acknowledged, 1 not" in errors
    assert errors.splitlines()[-1].startswith("rmq produce: error: ")
    assert "Traceback" not in errors


# Consuming


def test_json_lines(shell: Shell, topic: str) -> None:
    shell.produce(b"k:text\n", "-K", ":", "--tags", "new", "--property", "a=b")
    shell.produce(b"\xff\xfe\n")
    shown = [json.loads(line) for line in shell.consume("-e", "--json").output.splitlines()]
    text, binary = sorted(shown, key=lambda message: message["bodyEncoding"], reverse=True)
    assert (text["body"], text["bodyEncoding"], text["keys"]) == ("text", "utf-8", "k")
    assert (text["topic"], text["tags"], text["properties"]["a"]) == (topic, "new", "b")
    assert (binary["body"], binary["bodyEncoding"]) == ("//4=", "base64")
    assert {"broker", "queue", "offset", "messageId", "storeTimestamp"} <= text.keys()


def test_json_lines_round_trip(shell: Shell, broker: EmbeddedBroker, topic: str) -> None:
    given = [
        {"body": "plain"},
        {"key": "k1", "tags": "new", "headers": {"a": "b", "n": 7}, "body": {"total": 12.5}},
        {"keys": ["k2", "k3"], "body": "//4=", "bodyEncoding": "base64", "shardingKey": "s"},
        {"body": "soon", "delayMs": 1},
        {"body": "later", "delayLevel": 1},
    ]
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in given)
    assert shell.produce(lines, "-J", "--batch", "10").code == 0
    first = shell.consume("-c", "5", "-J").output
    copied = run_rmq("produce", "-n", broker.name_server, "-t", f"{topic}-copy", "-J", given=first)
    assert copied.code == 0, copied.errors
    second = run_rmq(
        "consume", "-n", broker.name_server, "-t", f"{topic}-copy", "-c", "5", "-J"
    ).output
    kept = [*KEPT, "properties"]
    shown = [
        sorted(
            json.dumps([users(json.loads(line)).get(name) for name in kept])
            for line in output.splitlines()
        )
        for output in (first, second)
    ]
    assert shown[0] == shown[1]
    bodies = {message["body"]: message for message in map(json.loads, second.splitlines())}
    order = bodies['{"total":12.5}']
    assert (order["keys"], order["tags"]) == ("k1", "new")
    assert {"a": "b", "n": "7"}.items() <= order["properties"].items()
    assert (bodies["//4="]["keys"], bodies["//4="]["shardingKey"]) == ("k2 k3", "s")


KEPT = ("body", "bodyEncoding", "keys", "tags", "shardingKey")


def users(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the properties that RocketMQ sets itself."""
    own = {"a", "n"}
    message["properties"] = {k: v for k, v in message["properties"].items() if k in own}
    return message


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"keys": "k"}', "has no field body"),
        (b'{"body": "x", "tag": "t"}', "no field 'tag'; there are body, bodyEncoding, keys, tags"),
        (b'{"body": "%", "bodyEncoding": "base64"}', "is not base64"),
        (b'{"body": "x", "delayLevel": "1"}', "delayLevel '1' is not a whole number"),
        (b'{"body": "x", "delayMs": "5s"}', "delayMs '5s' is not a whole number"),
        (b'{"body": "x", "delayMs": -5}', "delayMs -5 is below 0"),
    ],
)
def test_json_that_is_no_message(shell: Shell, line: bytes, text: str) -> None:
    ended = shell.produce(line + b"\n", "-J", "-q")
    assert ended.code == 1
    assert text in ended.error_lines[-1]


def test_a_delimiter(shell: Shell) -> None:
    assert shell.produce(b"a\r\nb--\n--c-\n", "-D", "\\x2d-", "-q") == Ended(0, b"", "")
    shown = [json.loads(line)["body"] for line in shell.consume("-e", "-J").output.splitlines()]
    assert sorted(shown) == ["\n", "a\r\nb", "c-\n"]


def test_where_it_begins(shell: Shell) -> None:
    shell.produce(b"".join(b"%d\n" % n for n in range(20)), "--batch", "20")
    shown = shell.consume("-e", "-f", "%p %T\\n").output.splitlines()
    queue = shown[0].split()[0].decode()
    one_queue = ("-q", queue, "-f", "%s ", "-e")
    assert shell.consume(*one_queue, "-o", "17").output == b"17 18 19 "
    assert shell.consume(*one_queue, "-o", "-2").output == b"18 19 "
    assert shell.consume(*one_queue, "-o", "end").output == b""
    assert shell.consume(*one_queue, "-o", "beginning", "-c", "1").output == b"0 "
    before = shown[0].split()[1].decode()
    assert shell.consume(*one_queue, "-o", f"@{before}").output.count(b" ") == 20
    assert shell.consume(*one_queue, "-o", f"@{int(before) + 86_400_000}").output == b""
    assert shell.consume(*one_queue, "-o", "5", "-c", "3").output == b"5 6 7 "


def test_consume_filters_by_tags(shell: Shell) -> None:
    for tag in ("a", "b", "c"):
        shell.produce(b"of %s\n" % tag.encode(), "--tags", tag)
    assert shell.lines("--tags", "b") == [b"of b"]
    assert shell.lines("--tags", "a || c") == [b"of a", b"of c"]


def test_an_unknown_topic(broker: EmbeddedBroker) -> None:
    ended = run_rmq("consume", "-n", broker.name_server, "-t", "nowhere")
    assert (ended.code, ended.output) == (1, b"")
    assert ended.error_lines == [
        f"rmq consume: error: topic 'nowhere' is not known to name server {broker.name_server}:"
        " rmq admin topic list shows those that are. See docs/errors.md#topic-not-found"
    ]


def test_an_unknown_queue(shell: Shell) -> None:
    shell.produce(b"x\n")
    ended = shell.consume("-q", "99")
    assert ended.code == 1
    assert "no queue number 99" in ended.errors


def test_consume_follows_the_topic(shell: Shell, begun: list[subprocess.Popen[bytes]]) -> None:
    shell.produce(b"old\n")
    consumer = shell.begin("consume", "-c", "2")
    begun.append(consumer)
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == b"old\n"
    shell.produce(b"new\n")
    output, errors = consumer.communicate(timeout=LIMIT_S)
    assert (consumer.returncode, output, errors) == (0, b"new\n", b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("group", [(), ("-G", "signalled")], ids=["alone", "group"])
def test_a_signal_ends_it_quietly(
    shell: Shell,
    begun: list[subprocess.Popen[bytes]],
    number: int,
    code: int,
    group: tuple[str, ...],
) -> None:
    shell.produce(b"a message\n")
    consumer = shell.begin("consume", *group)
    begun.append(consumer)
    assert consumer.stdout is not None
    assert consumer.stdout.readline() == b"a message\n"
    consumer.send_signal(number)
    assert consumer.communicate(timeout=LIMIT_S) == (b"", b"")
    assert consumer.returncode == code


def test_a_closed_output_ends_it_quietly(
    shell: Shell, begun: list[subprocess.Popen[bytes]]
) -> None:
    shell.produce(b"x" * 100 + b"\n")
    shell.produce(b"".join(b"%0100d\n" % n for n in range(10_000)), "--batch", "1000")
    consumer = shell.begin("consume")
    begun.append(consumer)
    assert consumer.stdout is not None
    consumer.stdout.readline()
    consumer.stdout.close()
    assert consumer.stderr is not None
    assert consumer.stderr.read() == b""
    assert consumer.wait(LIMIT_S) == 141


# Groups


def test_a_group_keeps_its_progress(shell: Shell, topic: str) -> None:
    group = ("-G", f"g-{topic}")
    shell.produce(b"1\n2\n3\n")
    assert shell.lines(*group) == [b"1", b"2", b"3"]
    assert shell.lines(*group) == []
    shell.produce(b"4\n")
    assert shell.lines(*group) == [b"4"]
    # Reading without the group leaves its progress alone, and sees everything.
    assert shell.lines() == [b"1", b"2", b"3", b"4"]


def test_a_count_leaves_the_rest_to_the_group(shell: Shell, topic: str) -> None:
    group = ("-G", f"g-{topic}")
    shell.produce(b"".join(b"%03d\n" % n for n in range(100)))
    first = shell.consume(*group, "-c", "30")
    assert (first.code, first.output.count(b"\n")) == (0, 30)
    rest = shell.lines(*group)
    assert sorted(first.output.splitlines() + rest) == [b"%03d" % n for n in range(100)]


def test_members_share_the_queues(
    shell: Shell, topic: str, begun: list[subprocess.Popen[bytes]]
) -> None:
    group = ("consume", "-G", f"g-{topic}", "-f", "%p %s\\n")
    shell.produce(b"start\n")
    members = [shell.begin(*group), shell.begin(*group)]
    begun += members
    seen: list[list[bytes]] = [[], []]
    both = threading.Event()

    def follow(number: int) -> None:
        output = members[number].stdout
        assert output is not None
        for line in output:
            seen[number].append(line)
            if all(seen):
                both.set()

    readers = [threading.Thread(target=follow, args=(n,), daemon=True) for n in (0, 1)]
    for reader in readers:
        reader.start()
    # Until the queues are shared out, one member may have them all.
    clock = SystemClock()
    until = clock.monotonic() + LIMIT_S
    while not both.is_set():
        assert clock.monotonic() < until
        shell.produce(b"".join(b"%d\n" % n for n in range(16)))
    for member in members:
        member.send_signal(signal.SIGTERM)
    for reader in readers:
        reader.join(LIMIT_S)


def test_a_new_group_may_begin_at_the_end(shell: Shell, topic: str) -> None:
    shell.produce(b"old\n")
    assert shell.lines("-G", f"g-{topic}", "-o", "end") == []


@pytest.mark.parametrize("batch", ["1", "100"])
def test_the_line_that_is_no_message_is_named(shell: Shell, batch: str) -> None:
    lines = [b'{"body": "%d"}' % number for number in range(500)]
    lines[321] = b'{"bdy": "x"}'
    ended = shell.produce(b"\n".join(lines), "-J", "-q", "--batch", batch)
    assert ended.code == 1
    assert ended.errors.startswith("rmq produce: error: line 322: no field 'bdy'; there are body,")
