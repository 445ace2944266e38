"""RocketMQ's `broker.conf` keys: the setting of each, or why it has no effect here.

Three tables. `BROKER_PROPERTIES` maps keys to fields of `BrokerConfig` (the store's keys are in
`broker_core.config.PROPERTY_NAMES`). `FIXED_PROPERTIES` are keys whose other values would promise
something that this broker does not do, so they are rejected. `IGNORED_PROPERTIES` tune parts that
this broker does not have; they have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

BROKER_PROPERTIES: Final[Mapping[str, str]] = {
    "brokerClusterName": "cluster_name",
    "brokerName": "broker_name",
    "brokerId": "broker_id",
    "bindAddress": "listen_host",
    "listenPort": "listen_port",
    "vipPortEnable": "vip_port_enable",
    "allowRemote": "allow_remote",
    "namesrvAddr": "name_servers",
    "registerNameServerPeriod": "register_period_ms",
    "storePathRootDir": "store_root",
    "haListenPort": "ha_listen_port",
    "haMasterAddress": "ha_master_address",
    "haClassicMaster": "ha_classic_master",
    "haAuthKey": "ha_auth_key",
    "haAuthKeyFile": "ha_auth_key_file",
    "haAllowWithoutKey": "ha_allow_without_key",
    "haTlsEnable": "ha_tls_enable",
    "haSendHeartbeatInterval": "ha_heartbeat_ms",
    "haHousekeepingInterval": "ha_housekeeping_ms",
    "haTransferBatchSize": "ha_batch_size",
    "haFrameSize": "ha_frame_size",
    "haSlaveFallbehindMax": "ha_fall_behind_max",
    "haSlavesMax": "ha_slaves_max",
    "inSyncReplicas": "in_sync_replicas",
    "minInSyncReplicas": "min_in_sync_replicas",
    "slaveTimeout": "slave_timeout_ms",
    "slaveReadEnable": "slave_read_enable",
    "offsetCheckInSlave": "offset_check_in_slave",
    "accessMessageInMemoryMaxRatio": "memory_read_ratio",
    "autoCreateTopicEnable": "auto_create_topic",
    "autoCreateSubscriptionGroup": "auto_create_group",
    "defaultTopicQueueNums": "default_topic_queue_count",
    "brokerPermission": "broker_permission",
    "enablePropertyFilter": "property_filter_enable",
    "longPollingEnable": "long_polling_enable",
    "shortPollingTimeMills": "short_polling_ms",
    "popInflightMessageThreshold": "pop_in_flight_max",
    "flushConsumerOffsetInterval": "offset_flush_interval_ms",
    "flushDelayOffsetInterval": "delay_offset_flush_interval_ms",
    "channelExpiredTimeout": "client_expiry_ms",
    "lockMaxLiveTime": "queue_lock_expiry_ms",
    "transactionTimeOut": "transaction_timeout_ms",
    "transactionCheckInterval": "transaction_check_interval_ms",
    "transactionCheckMax": "transaction_check_max",
    "rejectTransactionMessage": "reject_transactions",
    "timerWheelEnable": "timer_enable",
    "timerMaxDelaySec": "timer_delay_max_s",
    "recallMessageEnable": "recall_enable",
    "storeReplyMessageEnable": "store_replies",
    "regionId": "region_id",
    "traceOn": "trace_on",
    "traceTopicEnable": "trace_topic_enable",
    "topicsMax": "topics_max",
    "groupsMax": "groups_max",
    "queuesPerTopicMax": "queues_per_topic_max",
    "consumersPerGroupMax": "consumers_per_group_max",
    "offsetsMax": "offsets_max",
    "aclEnable": "acl_enable",
    "accessFile": "access_file",
    "aclStrictSignature": "acl_strict_signature",
    "innerAccessKey": "inner_access_key",
    "innerSecretKeyFile": "inner_secret_key_file",
    "tlsServerMode": "tls_server_mode",
    "tls.server.certPath": "tls_server_cert",
    "tls.server.keyPath": "tls_server_key",
    "tls.server.keyPasswordFile": "tls_server_key_password_file",
    "tls.server.need.client.auth": "tls_server_client_auth",
    "tls.server.trustCertPath": "tls_server_trust",
    "tls.enable": "tls_client_enable",
    "tls.client.trustCertPath": "tls_client_trust",
    "tls.client.certPath": "tls_client_cert",
    "tls.client.keyPath": "tls_client_key",
    "metricsExporterType": "metrics_exporter",
    "metricsPromExporterHost": "metrics_host",
    "metricsPromExporterPort": "metrics_port",
    "metricsTokenFile": "metrics_token_file",
    "metricsAllowWithoutToken": "metrics_allow_without_token",
    "slowRequestThresholdMs": "slow_request_ms",
}

# Names in 5.x for settings of 4.x.
OTHER_NAMES: Final[Mapping[str, str]] = {
    "haMaxGapNotInSync": "haSlaveFallbehindMax",
    "tls.server.mode": "tlsServerMode",
}

# Where the files of a store are, below its root.
STORE_PATHS: Final[Mapping[str, str]] = {
    "storePathCommitLog": "commitlog",
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}

# Key -> (the one value that is accepted, why).
FIXED_PROPERTIES: Final[Mapping[str, tuple[str, str]]] = {
    "authenticationEnabled": ("false", "set aclEnable=true: the accounts are in accessFile"),
    "authorizationEnabled": ("false", "set aclEnable=true: the accounts are in accessFile"),
    "useTLS": ("false", "set tls.enable=true for the connections of this broker"),
    "tls.server.keyPassword": ("", "write it into a file and set tls.server.keyPasswordFile"),
    "tls.client.authServer": ("true", "certificates of servers are always verified"),
    "tls.test.mode.enable": ("false", "certificates come from files"),
    "enableDLegerCommitLog": ("false", "a log replicated by consensus is not served"),
    "enableControllerMode": ("false", "controller mode is not served"),
    "enableSlaveActingMaster": ("false", "a slave never acts as master"),
    "inBrokerContainer": ("false", "one process runs one broker"),
    "duplicationEnable": ("false", "it is not served"),
    "enableConsumeQueueExt": ("false", "queue files have no extension"),
    "enableLmq": ("false", "multi-dispatch is not served"),
    "enableMultiDispatch": ("false", "multi-dispatch is not served"),
    "allAckInSyncStateSet": ("false", "controller mode is not served"),
    "enableAutoInSyncReplicas": ("false", "a put never waits for fewer slaves than were asked for"),
    "storeType": ("default", "only the file format of commit log and queues is served"),
    "messageStorePlugIn": ("", "there are no store plug-ins"),
    "filterServerNums": ("0", "no filter servers are started"),
    "fetchNamesrvAddrByAddressServer": ("false", "list the name servers in namesrvAddr"),
    "fetchNameSrvAddrByDnsLookup": ("false", "list the name servers in namesrvAddr"),
    "rejectPullConsumerEnable": ("false", "pull consumers are always served"),
    "lockInStrictMode": ("false", "a broker grants the locks of its own queues"),
    "disableConsumeIfConsumerReadSlowly": ("false", "slow groups are never switched off"),
    "startAcceptSendRequestTimeStamp": ("0", "sends are accepted from the start"),
    "msgTraceTopicName": ("RMQ_SYS_TRACE_TOPIC", "the trace topic has this name"),
    "clusterTopicEnable": ("true", "the topic named like the cluster always exists"),
    "brokerTopicEnable": ("true", "the topic named like the broker always exists"),
}


def _with_reason(reason: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), reason)


IGNORED_PROPERTIES: Final[Mapping[str, str]] = {
    **_with_reason(
        "one event loop answers every request; there are no thread pools",
        "sendMessageThreadPoolNums pullMessageThreadPoolNums litePullMessageThreadPoolNums "
        "ackMessageThreadPoolNums putMessageFutureThreadPoolNums queryMessageThreadPoolNums "
        "processReplyMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums "
        "consumerManageThreadPoolNums heartbeatThreadPoolNums endTransactionThreadPoolNums "
        "loadBalanceProcessorThreadPoolNums recoverThreadPoolNums "
        "batchDispatchRequestThreadPoolNums dispatchCqThreads asyncSendEnable",
    ),
    **_with_reason(
        "requests are bounded by bytes and counts per connection, not by queues",
        "sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity litePullThreadPoolQueueCapacity "
        "ackThreadPoolQueueCapacity putThreadPoolQueueCapacity queryThreadPoolQueueCapacity "
        "replyThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity "
        "consumerManagerThreadPoolQueueCapacity heartbeatThreadPoolQueueCapacity "
        "endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity "
        "loadBalanceThreadPoolQueueCapacity brokerFastFailureEnable waitTimeMillsInSendQueue "
        "waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue waitTimeMillsInHeartbeatQueue "
        "waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue "
        "maxAsyncPutMessageRequests",
    ),
    **_with_reason(
        "sockets are asyncio's; their limits are RemotingLimits",
        "serverWorkerThreads serverCallbackExecutorThreads serverSelectorThreads "
        "serverOnewaySemaphoreValue serverAsyncSemaphoreValue serverChannelMaxIdleTimeSeconds "
        "serverSocketSndBufSize serverSocketRcvBufSize serverSocketBacklog "
        "serverPooledByteBufAllocatorEnable serverNettyWorkerGroupEnable useEpollNativeSelector "
        "writeBufferHighWaterMark writeBufferLowWaterMark enableShutdownGracefully "
        "shutdownWaitTimeSeconds clientWorkerThreads clientCallbackExecutorThreads "
        "clientOnewaySemaphoreValue clientAsyncSemaphoreValue clientChannelMaxIdleTimeSeconds "
        "clientSocketSndBufSize clientSocketRcvBufSize clientPooledByteBufAllocatorEnable "
        "clientCloseSocketIfTimeout connectTimeoutMillis channelNotActiveInterval "
        "transferMsgByHeap",
    ),
    **_with_reason(
        "one thread appends, so there is no lock to choose",
        "useReentrantLockWhenPutMessage useABSLock topicQueueLockNum "
        "spinLockCollisionRetreatOptimalDegree debugLockEnable",
    ),
    **_with_reason(
        "the store decides this by itself",
        "checkCRCOnRecover forceVerifyPropCRC enableRunningFlagsInFlush readUnCommitted "
        "autoMessageVersionOnTopicLen messageIndexSafe flushLeastPagesWhenWarmMapedFile "
        "wakeFlushWhenPutMessage wakeCommitWhenPutMessage putConsumeQueueDataByFileChannel "
        "deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval "
        "destroyMapedFileIntervalForcibly redeleteHangedFileInterval "
        "maxTransferBytesOnMessageInDisk maxTransferCountOnMessageInDisk "
        "maxFilterMessageSize defaultQueryMaxNum "
        "travelCqFileNumWhenGetMessage mappedFileSizeConsumeQueueExt bitMapLengthConsumeQueueExt "
        "mappedFileSwapEnable maxTopicLength writeWithoutMmap dispatchFromSenderThread "
        "putMessageTimeout",
    ),
    **_with_reason(
        "replication does this by itself, or not at all",
        "brokerIP2 haMaxTimeSlaveNotCatchup haFlowControlEnable maxHaTransferByteInSecond "
        "totalReplicas syncFromLastFile asyncLearner",
    ),
    **_with_reason(
        "a transaction that has ended is noted at once, in a record of its own",
        "transactionOpMsgMaxSize transactionOpBatchInterval transactionMetricFlushInterval",
    ),
    **_with_reason(
        "timer messages are exact to the millisecond and wait in files of another kind",
        "timerPrecisionMs timerRollWindowSlot "
        "mappedFileSizeTimerLog timerFlushIntervalMs timerStopEnqueue timerInterceptDelayLevel "
        "enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit "
        "scheduleAsyncDeliverMaxResendNum2Blocked",
    ),
    **_with_reason(
        "what was popped is known from the consumer offset and from memory, without a revive log",
        "reviveQueueNum reviveInterval reviveMaxSlow reviveScanTime reviveAckWaitMs "
        "enableSkipLongAwaitingAck enablePopBufferMerge popCkStayBufferTime "
        "popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize enablePopBatchAck "
        "enablePopMessageThreshold enablePopLog popFromRetryProbability popPollingSize "
        "popPollingMapSize maxPopPollingSize",
    ),
    **_with_reason(
        "registration is always complete, and at once when a topic changes",
        "forceRegister compressedRegister registerBrokerTimeoutMills enableSingleTopicRegister "
        "enableSplitRegistration splitRegistrationSize compatibleWithOldNameSrv "
        "updateNameServerAddrPeriod fetchNamesrvAddrInterval brokerHeartbeatInterval",
    ),
    **_with_reason(
        "members of a group are always notified at once when it changes",
        "notifyConsumerIdsChangedEnable realTimeNotifyConsumerChange subscriptionExpiredTimeout",
    ),
    **_with_reason(
        "it only shapes the log or the statistics of a Java process",
        "rocketmqHome brokerConfigPath accountStatsEnable accountStatsPrintZeroValues "
        "autoDeleteUnusedStats maxStatsIdleTimeInMinutes enableDetailStat commercialEnable "
        "commercialTimerCount commercialTransCount commercialBigCount commercialBaseCount "
        "commercialSizePerMsg highSpeedMode isolateLogEnable maxDelayTime "
        "printChannelGroups printChannelGroupsMinNum",
    ),
    **_with_reason(
        "filters are evaluated on the messages themselves, without bit maps",
        "enableCalcFilterBitMap expectConsumerNumUseFilter maxErrorRateOfBloomFilter "
        "filterDataCleanTimeSpan filterSupportRetry",
    ),
}
