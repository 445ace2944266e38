"""Permission rules of a name server, by request code.

Any account may read. Only broker accounts may register routes, so that other accounts cannot
redirect clients. Only admins may change registered data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker_core.access.permissions import ADMINS, ANY_ACCOUNT, BROKERS, Rule
from broker_core.protocol_codes import RequestCode as Code

NAME_SERVER_RULES: Final[Mapping[int, Rule]] = {
    Code.GET_ROUTEINFO_BY_TOPIC: ANY_ACCOUNT,
    Code.GET_BROKER_CLUSTER_INFO: ANY_ACCOUNT,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ANY_ACCOUNT,
    Code.GET_TOPICS_BY_CLUSTER: ANY_ACCOUNT,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: ANY_ACCOUNT,
    Code.GET_UNIT_TOPIC_LIST: ANY_ACCOUNT,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: ANY_ACCOUNT,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ANY_ACCOUNT,
    Code.GET_BROKER_MEMBER_GROUP: ANY_ACCOUNT,
    Code.GET_KV_CONFIG: ANY_ACCOUNT,
    Code.GET_KVLIST_BY_NAMESPACE: ANY_ACCOUNT,
    Code.REGISTER_BROKER: BROKERS,
    Code.UNREGISTER_BROKER: BROKERS,
    Code.REGISTER_TOPIC_IN_NAMESRV: BROKERS,
    Code.QUERY_DATA_VERSION: BROKERS,
    Code.BROKER_HEARTBEAT: BROKERS,
    Code.PUT_KV_CONFIG: ADMINS,
    Code.DELETE_KV_CONFIG: ADMINS,
    Code.WIPE_WRITE_PERM_OF_BROKER: ADMINS,
    Code.ADD_WRITE_PERM_OF_BROKER: ADMINS,
    Code.DELETE_TOPIC_IN_NAMESRV: ADMINS,
    Code.UPDATE_NAMESRV_CONFIG: ADMINS,
    Code.GET_NAMESRV_CONFIG: ADMINS,
}
