"""Options that name a schema, and files that they name."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core import errors
from pyspark_rmq.options import SourceOptions
from pyspark_rmq.payloads.schema_options import SchemaOptions
from pyspark_rmq.sink.sink_options import SinkOptions


def parse(**given: str) -> SchemaOptions:
    texts = {"rmq.namesrv.addr": "h:1", "subscribe": "t", "valueFormat": "avro"}
    options = {name.replace("_", "."): text for name, text in given.items()}
    return SourceOptions.parse({**texts, **options}).payload.schema


def test_a_text_and_a_file_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text('"int"')
    assert parse(value_schema='"int"').texts == ((None, '"int"'),)
    found = parse(value_schema_file=str(path), value_schema_registry_framing="none")
    assert found == SchemaOptions("value.schema.file", ((None, '"int"'),), "none")


def test_a_descriptor_set_is_read_on_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "shop.desc"
    path.write_bytes(b"\xff\0")
    given = {"valueFormat": "protobuf", "value_message_name": "shop.Order"}
    found = parse(**given, value_schema_file=str(path))
    assert (found.descriptors, found.message) == (b"\xff\0", "shop.Order")
    path.unlink()
    with pytest.raises(errors.InvalidArgument, match=r"shop\.desc cannot be read on the driver"):
        parse(**given, value_schema_file=str(path))


def test_a_directory_has_schemas_by_id(tmp_path: Path) -> None:
    for name in ("7.avsc", "12.avsc", "x.avsc", "8.avsc.old", "99999999999.avsc"):
        (tmp_path / name).write_text(f'"{name}"')
    found = parse(value_schema_file=str(tmp_path))
    assert found.texts == ((12, '"12.avsc"'), (7, '"7.avsc"'))
    assert found.named(7) == "value.schema.file (7.avsc)"
    with pytest.raises(errors.InvalidArgument, match="framing=none give one file"):
        parse(value_schema_file=str(tmp_path), value_schema_registry_framing="none")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgument, match=r"no\.avsc cannot be read on the driver: No"):
        parse(value_schema_file=str(tmp_path / "no.avsc"))
    with pytest.raises(errors.InvalidArgument, match=r"is a directory, and must have files"):
        parse(value_schema_file=str(tmp_path))
    path = tmp_path / "a.avsc"
    path.write_bytes(b"\xff")
    with pytest.raises(errors.InvalidArgument, match="is not UTF-8"):
        parse(value_schema_file=str(path))
    with path.open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(errors.InvalidArgument, match="has more than 16777216 bytes"):
        parse(value_schema_file=str(path))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "needs one of the options value.schema"),
        ({"value_schema": "1", "value_schema_file": "2"}, "needs one of the options"),
        ({"value_schema": "1", "value_schema_registry_framing": "x"}, "auto or none or always"),
        ({"value_schema": "1", "valueFormat": "json"}, "value.schema is for valueFormat=avro"),
        ({"value_schema_file": "1", "valueFormat": "json"}, "is for valueFormat=avro or protobuf"),
        ({"value_schema": "1", "value_message_name": "M"}, "is for valueFormat=protobuf, not"),
        ({"value_schema_file": "f", "valueFormat": "protobuf"}, "needs the options .*message.name"),
        ({"value_message_name": "M", "valueFormat": "protobuf"}, "needs the options .*schema.file"),
        ({"value_schema_registry_url": "h"}, "an address such as http://registry:8081"),
        ({"value_schema_registry_url": "http://h", "value_schema": "1"}, "needs one of"),
        (
            {"value_schema_registry_url": "http://h", "value_schema_registry_framing": "none"},
            "needs bodies with a schema id",
        ),
        ({"value_schema": "1", "value_schema_registry_id": "7"}, "id of a source needs .*url"),
        ({"value_schema": "1", "value_schema_registry_user": "u"}, "user and .*password go togeth"),
        ({"value_schema_registry_url": "http://h", "valueFormat": "protobuf"}, "is for value"),
    ],
)  # fmt: skip
def test_options_that_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(errors.RmqError, match=text):
        parse(**given)


def test_a_registry() -> None:
    found = parse(
        value_schema_registry_url="http://h:8081/", value_schema_registry_user="u",
        value_schema_registry_password="secret",
    )  # fmt: skip
    assert (found.registry.url, found.texts, found.framing) == ("http://h:8081", (), "auto")
    assert "secret" not in repr(found)


def test_frames_of_the_sink() -> None:
    given = {"rmq.namesrv.addr": "h:1", "topic": "t", "valueFormat": "avro", "value.schema": "1"}
    found = SinkOptions.parse({**given, "value.schema.registry.id": "7"}).value_schema
    assert (found.framing, found.registry.schema_id) == ("always", 7)
    for more in ({"framing": "always"}, {"framing": "none", "id": "7"}):
        texts = {f"value.schema.registry.{name}": text for name, text in more.items()}
        with pytest.raises(errors.InvalidArgument, match=r"framing=always and .*id of a sink go"):
            SinkOptions.parse({**given, **texts})
    del given["value.schema"]
    with pytest.raises(errors.InvalidArgument, match=r"of a sink needs value\.schema\.reg"):
        SinkOptions.parse({**given, "value.schema.registry.url": "http://h"})


def test_the_sink_writes_no_frames_without_an_id(tmp_path: Path) -> None:
    given = {"rmq.namesrv.addr": "h:1", "topic": "t", "valueFormat": "avro"}
    assert SinkOptions.parse({**given, "value.schema": "1"}).value_schema.framing == "none"
    with pytest.raises(errors.RmqError, match="none"):
        SinkOptions.parse({**given, "value.schema": "1", "value.schema.registry.framing": "auto"})
    (tmp_path / "7.avsc").write_text('"int"')
    with pytest.raises(errors.InvalidArgument, match="give one file"):
        SinkOptions.parse({**given, "value.schema.file": str(tmp_path)})
