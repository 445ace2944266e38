"""Names of topics, groups and brokers that clients and brokers both know, and their validation.

Every entry point validates names, because topics become directory names.

The rule is RocketMQ's (characters `%|a-zA-Z0-9_-`, 127 bytes, retry topics 255, groups 120) and
rejects two more kinds: Windows device names and names made of `%` only.
"""

from __future__ import annotations

import re
from typing import Final

TOPIC_SIZE_MAX: Final = 127
RETRY_TOPIC_SIZE_MAX: Final = 255
GROUP_SIZE_MAX: Final = 120
BROKER_NAME_SIZE_MAX: Final = 255
RETRY_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_TOPIC_PREFIX: Final = "%DLQ%"
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

TEMPLATE_TOPIC: Final = "TBW102"
"""Topics that sends create get the permissions of this one."""
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
APPEND_GROUP_TOPIC: Final = "rmq_sys_append_group"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRANSACTION_GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRANSACTION_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
PROXY_HEARTBEAT_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of tools, and of requests that name no group."""
TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""Its offsets say how far transactions have ended."""
SYSTEM_GROUPS: Final = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
"""Groups of the servers; created even where clients may not create groups."""
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]+")
# Host names have dots, and a broker is named after its host by default.
_BROKER = re.compile(r"[%|a-zA-Z0-9_.-]+")
_DEVICE = re.compile(r"(?:CON|PRN|AUX|NUL|COM[0-9]|LPT[0-9])", re.IGNORECASE)


def is_system_group(name: str) -> bool:
    """Whether a group belongs to the servers."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def topic_name_problem(name: object) -> str | None:
    """Why `name` cannot be a topic, or None if it can."""
    if not isinstance(name, str | bytes):
        return f"topic is not a string but {type(name).__name__}"
    text = _text(name)
    size_max = RETRY_TOPIC_SIZE_MAX if text.startswith(RETRY_TOPIC_PREFIX) else TOPIC_SIZE_MAX
    return _problem(text, "topic", size_max)


def group_name_problem(name: str | bytes) -> str | None:
    """Why `name` cannot be a producer or consumer group, or None if it can."""
    return _problem(_text(name), "group", GROUP_SIZE_MAX)


def broker_name_problem(name: str) -> str | None:
    """Why `name` cannot be a broker or cluster name, or None if it can."""
    if len(name) > BROKER_NAME_SIZE_MAX:
        return f"has more than {BROKER_NAME_SIZE_MAX} characters"
    if _BROKER.fullmatch(name) is None or not name.strip("."):
        return f"{name[:60]!r} has a character outside %|a-zA-Z0-9_.-"
    return None


def _text(name: str | bytes) -> str:
    # Latin-1 keeps every byte, so that bytes outside ASCII fail the character rule.
    return name.decode("latin-1") if isinstance(name, bytes) else name


def _problem(text: str, kind: str, size_max: int) -> str | None:
    if not text:
        return f"{kind} is empty"
    # The size comes first so that a huge name is never searched or quoted.
    if len(text) > size_max:
        return f"{kind} has more than {size_max} bytes"
    if _ALLOWED.fullmatch(text) is None:
        return f"{kind} has a character outside %|a-zA-Z0-9_-"
    if _DEVICE.fullmatch(text):
        return f"{kind} is a device name on Windows"
    if not text.strip("%"):
        return f"{kind} consists of % only"
    return None
