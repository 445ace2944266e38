"""Source and sink at a cluster with accounts and TLS; the secret is in no plan, error or file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.access.access_files import BROKER, write_access_file, write_secret_file
from tests.cli.rmq_process import running
from tests.remoting.certificates import Authority
from tests.spark.stream_runs import run_to_end

pytest.importorskip("pyspark")

PROJECT = Path(__file__).parent.parent.parent

USER = {
    "accessKey": "spark",
    "secretKey": "canary-of-spark",
    "topicPerms": ["In=PUB|SUB", "Out=PUB|SUB"],
    "defaultGroupPerm": "PUB|SUB",
}


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The options of a client of the protected cluster."""
    directory = tmp_path_factory.mktemp("protected")
    authority = Authority(directory)
    files = authority.issue("server")
    properties = {
        "aclEnable": "true",
        "accessFile": str(write_access_file(directory / "access.json", USER, BROKER)),
        "innerAccessKey": BROKER["accessKey"],
        "innerSecretKeyFile": str(write_secret_file(directory / "inner", BROKER)),
        "tlsServerMode": "enforcing",
        "tls.server.certPath": files.certificate,
        "tls.server.keyPath": files.key,
        "tls.enable": "true",
        "tls.client.trustCertPath": authority.path,
    }
    given = [word for key, value in properties.items() for word in ("-p", f"{key}={value}")]
    topics = ("-t", "In:2", "-t", "Out:2", "-t", "Other:1")
    options = ("standalone", "--port", "0", "--broker-port", "0", *topics, *given)
    with running(directory, *options) as server:
        yield {
            "rmq.namesrv.addr": server.address,
            "rmq.access.key": str(USER["accessKey"]),
            "rmq.secret.key": str(USER["secretKey"]),
            "rmq.tls.enable": "true",
            "rmq.tls.ca": authority.path,
        }
        ended = server.end()
    assert "canary" not in ended.errors


def test_read_and_write(spark: Any, protected: dict[str, str], tmp_path: Path) -> None:
    rows = spark.range(20).selectExpr("cast(id as string) as value")
    rows.write.format("rmq").options(**protected).option("topic", "In").mode("append").save()
    frame = spark.read.format("rmq").options(**protected).load("In")
    assert sorted(int(bytes(row.value)) for row in frame.collect()) == list(range(20))
    plan = frame._jdf.queryExecution().toString()
    assert "canary" not in plan

    checkpoint = tmp_path / "checkpoint"
    source = spark.readStream.format("rmq").options(**protected)
    stream = source.option("subscribe", "In").option("startingOffsets", "earliest").load()
    writer = (
        stream.select("value")
        .writeStream.format("rmq")
        .options(**protected)
        .option("topic", "Out")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
    )
    run_to_end(writer.start)
    copied = spark.read.format("rmq").options(**protected).load("Out").collect()
    assert sorted(int(bytes(row.value)) for row in copied) == list(range(20))
    for file in checkpoint.rglob("*"):
        assert not file.is_file() or b"canary" not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rmq.secret.key": "wrong-canary"}, "access denied"),
        ({"rmq.tls.enable": "false", "rmq.tls.ca": None}, "could not be reached|lost|closed"),
    ],
)
def test_refusals_show_no_secret(
    spark: Any, protected: dict[str, str], changes: dict[str, str | None], reason: str
) -> None:
    options = {k: v for k, v in {**protected, **changes}.items() if v is not None}
    with pytest.raises(Exception, match=reason) as failure:
        spark.read.format("rmq").options(**options).load("In").collect()
    assert "canary" not in "".join(traceback.format_exception(failure.value))


def test_nothing_that_spark_keeps_or_shows_has_the_secret(
    protected: dict[str, str], tmp_path: Path
) -> None:
    """Event log, pages of the UI, checkpoint, and the log with everything in it."""
    for folder in ("events", "private"):
        (tmp_path / folder).mkdir()
    with (tmp_path / "driver.log").open("wb") as log:
        ended = subprocess.run(
            [sys.executable, "-m", "tests.spark.secret_driver", str(tmp_path)],
            cwd=PROJECT,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(PROJECT)},
            input=json.dumps(protected).encode(),
            stdout=log,
            stderr=log,
            timeout=600,
            check=False,
        )
    shown = {str(file.relative_to(tmp_path)): file.read_bytes() for file in _files(tmp_path)}
    assert ended.returncode == 0, shown["driver.log"][-2000:]
    assert b"access denied" in shown["driver.log"]
    assert any(b"SparkListenerSQLExecutionStart" in shown[name] for name in _below(shown, "events"))
    assert any(b"rmq.access.key" in shown[name] for name in _below(shown, "events"))
    assert len(_below(shown, "pages")) >= 9
    assert _below(shown, "checkpoint")
    found = {name for name, content in shown.items() if b"canary" in content}
    assert found == {"private/secret"}


def _files(directory: Path) -> list[Path]:
    return [file for file in directory.rglob("*") if file.is_file()]


def _below(shown: dict[str, bytes], folder: str) -> list[str]:
    return [name for name in shown if name.startswith(f"{folder}/")]
