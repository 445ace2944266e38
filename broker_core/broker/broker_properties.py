"""RocketMQ's `broker.conf` keys: which setting they are, or why they change nothing here.

Three tables. `BROKER_PROPERTIES` maps keys to fields of `BrokerConfig` (the store's keys are in
`broker_core.config.PROPERTY_NAMES`). `FIXED_PROPERTIES` are keys whose other values would promise
something that this broker does not do, so they are refused. `IGNORED_PROPERTIES` tune parts that
this broker does not have; they change nothing.
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
    "flushConsumerOffsetInterval": "offset_flush_interval_ms",
    "flushDelayOffsetInterval": "delay_offset_flush_interval_ms",
    "channelExpiredTimeout": "client_expiry_ms",
    "lockMaxLiveTime": "queue_lock_expiry_ms",
    "transactionTimeOut": "transaction_timeout_ms",
    "transactionCheckInterval": "transaction_check_interval_ms",
    "transactionCheckMax": "transaction_check_max",
    "rejectTransactionMessage": "reject_transactions",
    "regionId": "region_id",
    "traceOn": "trace_on",
    "traceTopicEnable": "trace_topic_enable",
    "topicsMax": "topics_max",
    "groupsMax": "groups_max",
    "queuesPerTopicMax": "queues_per_topic_max",
    "consumersPerGroupMax": "consumers_per_group_max",
    "offsetsMax": "offsets_max",
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
    "aclEnable": ("false", "access control is not served"),
    "authenticationEnabled": ("false", "access control is not served"),
    "authorizationEnabled": ("false", "access control is not served"),
    "useTLS": ("false", "TLS is not served"),
    "enableDLegerCommitLog": ("false", "a log replicated by consensus is not served"),
    "enableControllerMode": ("false", "controller mode is not served"),
    "enableSlaveActingMaster": ("false", "a slave never acts as master"),
    "inBrokerContainer": ("false", "one process runs one broker"),
    "duplicationEnable": ("false", "it is not served"),
    "enableConsumeQueueExt": ("false", "queue files have no extension"),
    "enableLmq": ("false", "multi-dispatch is not served"),
    "enableMultiDispatch": ("false", "multi-dispatch is not served"),
    "inSyncReplicas": ("1", "replication is not served yet"),
    "minInSyncReplicas": ("1", "replication is not served yet"),
    "totalReplicas": ("1", "replication is not served yet"),
    "allAckInSyncStateSet": ("false", "replication is not served yet"),
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
        "replication is not served yet",
        "haMasterAddress brokerIP2 haSendHeartbeatInterval haHousekeepingInterval "
        "haTransferBatchSize haMaxGapNotInSync haSlaveFallbehindMax haMaxTimeSlaveNotCatchup "
        "haFlowControlEnable maxHaTransferByteInSecond slaveTimeout enableAutoInSyncReplicas "
        "syncFromLastFile asyncLearner",
    ),
    **_with_reason(
        "a transaction that has ended is noted at once, in a record of its own",
        "transactionOpMsgMaxSize transactionOpBatchInterval transactionMetricFlushInterval",
    ),
    **_with_reason(
        "timer messages to the second are not served; delay levels are",
        "timerWheelEnable timerMaxDelaySec timerPrecisionMs timerRollWindowSlot "
        "mappedFileSizeTimerLog timerFlushIntervalMs timerStopEnqueue timerInterceptDelayLevel "
        "enableScheduleAsyncDeliver scheduleAsyncDeliverMaxPendingLimit "
        "scheduleAsyncDeliverMaxResendNum2Blocked",
    ),
    **_with_reason(
        "registration is always complete, and at once when a topic changes",
        "forceRegister compressedRegister registerBrokerTimeoutMills enableSingleTopicRegister "
        "enableSplitRegistration splitRegistrationSize compatibleWithOldNameSrv "
        "updateNameServerAddrPeriod fetchNamesrvAddrInterval brokerHeartbeatInterval",
    ),
    **_with_reason(
        "members of a group are always told at once when it changes",
        "notifyConsumerIdsChangedEnable realTimeNotifyConsumerChange subscriptionExpiredTimeout",
    ),
    **_with_reason(
        "it only shapes the log or the statistics of a Java process",
        "rocketmqHome brokerConfigPath accountStatsEnable accountStatsPrintZeroValues "
        "autoDeleteUnusedStats maxStatsIdleTimeInMinutes enableDetailStat commercialEnable "
        "commercialTimerCount commercialTransCount commercialBigCount commercialBaseCount "
        "commercialSizePerMsg highSpeedMode isolateLogEnable maxDelayTime metricsExporterType "
        "printChannelGroups printChannelGroupsMinNum",
    ),
    **_with_reason(
        "filters are evaluated on the messages themselves, without bit maps",
        "enableCalcFilterBitMap expectConsumerNumUseFilter maxErrorRateOfBloomFilter "
        "filterDataCleanTimeSpan filterSupportRetry",
    ),
}
