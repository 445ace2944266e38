"""`SyncAdmin`."""

from __future__ import annotations

from broker_core.client.admin.admin import Admin
from broker_core.client.blocking.face import SyncFace, client_config, waits
from broker_core.client.connection.config import ClientConfig


class SyncAdmin(SyncFace[Admin]):
    """`Admin` with calls that wait. Any thread may call it."""

    def __init__(self, config: ClientConfig | str) -> None:
        config = client_config(config)
        super().__init__(config, Admin(config))

    cluster_info = waits(Admin.cluster_info)
    masters = waits(Admin.masters)
    members = waits(Admin.members)
    ask = waits(Admin.ask)

    topics = waits(Admin.topics)
    route = waits(Admin.route)
    create_topic = waits(Admin.create_topic)
    create_topics = waits(Admin.create_topics)
    delete_topic = waits(Admin.delete_topic)

    create_group = waits(Admin.create_group)
    delete_group = waits(Admin.delete_group)

    queues = waits(Admin.queues)
    min_offset = waits(Admin.min_offset)
    max_offset = waits(Admin.max_offset)
    offset_by_time = waits(Admin.offset_by_time)
    topic_offsets = waits(Admin.topic_offsets)
    committed_offset = waits(Admin.committed_offset)
    committed_offsets = waits(Admin.committed_offsets)
    commit_offset = waits(Admin.commit_offset)
    reset_offsets = waits(Admin.reset_offsets)

    view_message = waits(Admin.view_message)
    query_messages = waits(Admin.query_messages)
    query_index = waits(Admin.query_index)
