"""The administration commands and their help."""

from __future__ import annotations

import pytest

from broker_core.cli.admin.registry import ADMIN_COMMANDS, find_command, similar_commands
from broker_core.cli.main import main

Capture = pytest.CaptureFixture[str]


def test_names_and_aliases_are_unique() -> None:
    seen: dict[str, str] = {}
    for name, entry in ADMIN_COMMANDS.items():
        assert len(name.split()) <= 2
        for word in (name, *(alias.lower() for alias in entry.aliases)):
            assert seen.setdefault(word, name) == name
            assert find_command([*word.split(), "-x"]) == (name, entry, ["-x"])


@pytest.mark.parametrize("name", ADMIN_COMMANDS)
def test_every_command_has_help_with_examples(name: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["admin", *name.split(), "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert "examples:\n  rmq admin" in shown and "--json" in shown
    assert max(map(len, shown.splitlines())) <= 110


@pytest.mark.parametrize("subject", sorted({name.split()[0] for name in ADMIN_COMMANDS}))
def test_every_subject_has_help(subject: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["admin", subject, "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    names = [name for name in ADMIN_COMMANDS if name.split()[0] == subject]
    if names == [subject]:
        assert shown.startswith(f"usage: rmq admin {subject} ")
        return
    assert shown.startswith(f"usage: rmq admin {subject} COMMAND [OPTION ...]\n\n  {names[0]} ")
    assert [name for name in names if f"\n  {name} " in shown] == names
    if find_command([subject]) is None:
        # Without a command it is the same, as an error.
        assert main(["admin", subject]) == 2
        assert capsys.readouterr() == ("", shown)


MQADMIN = [
    "clusterList", "brokerStatus", "updateTopic", "updateTopicPerm", "deleteTopic", "topicList",
    "topicStatus", "topicRoute", "topicClusterList", "statsAll", "updateSubGroup",
    "deleteSubGroup", "getConsumerConfig", "consumerProgress", "consumerConnection",
    "producerConnection", "producer", "consumerStatus", "getConsumerStatus", "queryMsgById",
    "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset", "printMsg", "printMsgByQueue",
    "consumeMessage", "sendMessage", "resetOffsetByTime", "resetOffsetByTimeOld",
    "skipAccumulatedMessage", "cloneGroupOffset", "getBrokerConfig", "updateBrokerConfig",
    "brokerConsumeStats", "wipeWritePerm", "addWritePerm", "cleanExpiredCQ", "cleanUnusedTopic",
    "deleteExpiredCommitLog", "updateKvConfig", "deleteKvConfig", "updateOrderConf",
    "getNamesrvConfig", "updateNamesrvConfig", "haStatus",
]  # fmt: skip


@pytest.mark.parametrize("name", MQADMIN)
def test_names_of_mqadmin_are_known(name: str) -> None:
    assert find_command([name]) is not None


def test_an_unknown_command_names_those_that_are_near(capsys: Capture) -> None:
    assert main(["admin", "topic", "destroy"]) == 2
    assert "did you mean topic list" in capsys.readouterr().err
    assert main(["admin", "topic", "dlete"]) == 2
    assert "did you mean topic delete?" in capsys.readouterr().err
    assert main(["admin", "topicStatsu"]) == 2
    assert "topicStatus" in capsys.readouterr().err
    assert main(["admin", "xyzzy"]) == 2
    assert "--help" in capsys.readouterr().err
    assert similar_commands(["offset"])[0] == "offset reset"
    assert main(["admin"]) == 2
