"""`rmq broker`: sources of settings, errors in them, memory and start time, imported modules."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from broker_core.cli.servers.broker import merged_config
from broker_core.errors import InvalidConfig
from tests.access.access_files import ADMIN, write_access_file
from tests.cli.rmq_process import run_rmq, running

SMALL = ("mappedFileSizeCommitLog=1048576", "maxIndexNum=1000", "maxHashSlotNum=100")
RSS_MAX_KB = 80_000


def written(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "broker.conf"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_the_strongest_source_wins() -> None:
    config, unknown = merged_config(
        {"file": {"brokerName": "a", "brokerClusterName": "c"}, "-p": {"brokerName": "b"}}
    )
    assert (config.broker_name, config.cluster_name, unknown) == ("b", "c", ())


def test_a_bad_value_is_blamed_on_its_source() -> None:
    with pytest.raises(InvalidConfig, match=r"^second: brokerId='x' cannot be used"):
        merged_config({"first": {"brokerId": "1"}, "second": {"brokerId": "x"}})
    with pytest.raises(InvalidConfig, match=r"^first: brokerId='x' cannot be used"):
        merged_config({"first": {"brokerId": "x"}, "second": {"brokerName": "a"}})


def test_a_configuration_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "# a comment",
        "brokerName = from-file",
        "brokerClusterName : c1",
        "listenPort=0",
        f"storePathRootDir={tmp_path / 'store'}",
        "sendMessageThreadPoolNums=16",
        "autoCreateTopicEnabel=true",
        *SMALL,
    )
    with running(tmp_path, "broker", "-c", path) as server:
        assert server.ready.startswith("rmq broker from-file ready on ")
        ended = server.end()
    assert ended.code == 0
    assert "unknown property autoCreateTopicEnabel: did you mean autoCreateTopicEnable?" in (
        ended.errors
    )
    assert "sendMessageThreadPoolNums" not in ended.errors
    assert "no name server is given" in ended.errors
    assert (tmp_path / "store" / "commitlog").is_dir()


def test_a_bad_value_names_file_key_and_value(tmp_path: Path) -> None:
    path = written(tmp_path, "flushDiskType=SOMETIMES")
    ended = run_rmq("broker", "-c", path)
    assert (ended.code, ended.output) == (2, b"")
    assert len(ended.error_lines) == 1
    for part in ("rmq broker: error: ", path, "flushDiskType", "SOMETIMES"):
        assert part in ended.errors


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("-p", "listenPort=99999"), "option -p: listenPort='99999'"),
        (("-p", "bindAddress=0.0.0.0", "-p", "brokerIP1=10.0.0.1"), "allowRemote=true"),
        (("-c", "does-not-exist.conf"), "does-not-exist.conf"),
    ],
)
def test_other_mistakes(arguments: tuple[str, ...], named: str) -> None:
    ended = run_rmq("broker", *arguments)
    assert (ended.code, ended.output) == (2, b"")
    assert named in ended.errors
    assert len(ended.error_lines) == 1


def test_name_servers_of_the_environment_are_checked() -> None:
    ended = run_rmq("broker", NAMESRV_ADDR="nonsense")
    assert ended.code == 2
    assert "variable NAMESRV_ADDR: namesrvAddr='nonsense'" in ended.errors


def test_a_store_has_one_owner(tmp_path: Path) -> None:
    options = ("broker", "-p", "listenPort=0", "-p", f"storePathRootDir={tmp_path / 'store'}")
    options += tuple(part for setting in SMALL for part in ("-p", setting))
    with running(tmp_path, *options):
        ended = run_rmq(*options)
    assert (ended.code, ended.output) == (1, b"")
    assert "Traceback" not in ended.errors
    assert str(tmp_path / "store") in ended.error_lines[-1]


def test_other_machines_need_accounts(tmp_path: Path) -> None:
    access = write_access_file(tmp_path / "access.json", ADMIN)
    lines = [
        "bindAddress=0.0.0.0",
        "brokerIP1=127.0.0.1",
        "allowRemote=true",
        "listenPort=0",
        f"storePathRootDir={tmp_path / 'store'}",
        *SMALL,
    ]
    ended = run_rmq("broker", "-c", written(tmp_path, *lines))
    assert (ended.code, ended.output) == (2, b"")
    assert "aclEnable=true" in ended.errors
    assert not (tmp_path / "store").exists()
    lines += ["aclEnable=true", f"accessFile={access}"]
    ended = run_rmq("broker", "-c", written(tmp_path, *lines))
    assert (ended.code, ended.output) == (2, b"")
    assert "haAuthKeyFile" in ended.errors
    assert not (tmp_path / "store").exists()
    key = tmp_path / "ha.key"
    key.write_text("between brokers\n")
    key.chmod(0o600)
    path = written(tmp_path, *lines, f"haAuthKeyFile={key}")
    with running(tmp_path, "broker", "-c", path) as server:
        assert server.end().code == 0


def test_what_a_broker_takes(tmp_path: Path, summary_lines: list[str]) -> None:
    """Memory of an idle broker. Processor time is printed only: it depends on the machine.

    What would make a start slow is an import, and the next test looks at these.
    """
    options = ("standalone", "--port", "0", "--broker-port", "0", "--store", str(tmp_path / "s"))
    # Once before, so that bytecode is there as in an installed package.
    with running(tmp_path, *options):
        pass
    with running(tmp_path, *options) as server:
        proc = Path(f"/proc/{server.process.pid}")
        fields = proc.joinpath("stat").read_text().rpartition(")")[2].split()
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        status = dict(
            line.split(":", 1) for line in proc.joinpath("status").read_text().splitlines()
        )
        rss_kb = int(status["VmRSS"].split()[0])
    summary_lines.append(f"idle broker: {cpu_s:.2f} s of CPU until ready, {rss_kb // 1000} MB")
    assert rss_kb < RSS_MAX_KB


def test_a_broker_imports_nothing_heavy(tmp_path: Path) -> None:
    options = ("standalone", "--port", "0", "--broker-port", "0", "--store", str(tmp_path / "s"))
    with running(tmp_path, *options, flags=("-X", "importtime")) as server:
        errors = server.end().errors
    imported = {line.rpartition("|")[2].strip() for line in errors.splitlines() if "|" in line}
    assert "broker_core.broker.broker" in imported
    tops = {name.partition(".")[0] for name in imported}
    assert not tops & {"numpy", "pandas", "pyarrow", "pyspark", "py4j"}


def test_a_store_that_is_no_directory_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    ended = run_rmq("broker", "-p", f"storePathRootDir={path}", "-p", "listenPort=0")
    assert (ended.code, ended.error_lines[-1]) == (
        1,
        f"rmq broker: error: store {path}: cannot be opened as a directory: Not a directory",
    )


@pytest.mark.parametrize(
    ("options", "way"),
    [
        (("standalone", "--port", "PORT", "--broker-port", "0"), "--port or --broker-port"),
        (("standalone", "--port", "0", "--broker-port", "PORT"), "--port or --broker-port"),
        (("namesrv", "--listen", "127.0.0.1:PORT"), "--listen"),
        (("broker", "-p", "listenPort=PORT", "-p", "storePathRootDir=DIR"), "-p listenPort=PORT"),
    ],
)
def test_a_port_in_use(tmp_path: Path, options: tuple[str, ...], way: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        store = str(tmp_path / "store")
        ended = run_rmq(*(word.replace("PORT", port).replace("DIR", store) for word in options))
    assert (ended.code, ended.error_lines[-1]) == (
        1,
        f"rmq {options[0]}: error: cannot listen on 127.0.0.1:{port}: another program uses this"
        f" port. Stop it, or choose another port with {way} (0 = any free one)."
        " See docs/errors.md#port-in-use",
    )


def test_a_topic_that_cannot_be_is_refused_before_the_start() -> None:
    ended = run_rmq("standalone", "--topic", "a b:2")
    assert (ended.code, ended.errors) == (
        2,
        "rmq standalone: error: argument -t/--topic: 'a b': topic has a character outside"
        " %|a-zA-Z0-9_- (rmq standalone --help)\n",
    )


def test_a_store_with_other_file_sizes(tmp_path: Path) -> None:
    store = tmp_path / "store"
    ports = ("--port", "0", "--broker-port", "0")
    with running(tmp_path, "standalone", *ports, "--store", str(store)) as server:
        assert run_rmq("produce", "-t", "T", "-n", server.address, given=b"x\n").code == 0
        server.end()
    ended = run_rmq("broker", "-p", f"storePathRootDir={store}", "-p", "listenPort=0")
    assert (ended.code, ended.error_lines[-1]) == (
        1,
        f"rmq broker: error: store {store}: commitlog/00000000000000000000: damage at position"
        " 67108864: the file has 67108864 of 1073741824 bytes. If the store was written with"
        " another size of files, set commit_log_file_size (mappedFileSizeCommitLog) to it; else the"
        " file was cut short. Restore the file from a replica or a backup; nothing was changed",
    )
