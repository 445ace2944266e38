import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageArrivingListener;
import org.apache.rocketmq.store.config.BrokerRole;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * One opened store of whichever RocketMQ version is on the class path.
 *
 * <p>Owns the life of a DefaultMessageStore: configuration, load with recovery, start, shutdown.
 * The only place that knows how the constructors of 4.9 and 5.x differ. Never changes what the
 * store does, except that it keeps it from deleting files and from delivering delayed messages,
 * so that opening a directory in order to look at it adds nothing to the log.
 */
final class PeerStore {
    private static final long DISPATCH_TIMEOUT_MS = 60_000;

    final DefaultMessageStore store;
    /** 4.9 turns a delay level into a schedule-topic record inside the store; 5.x leaves it to the broker. */
    final boolean storeRewritesDelay;
    private final BrokerStatsManager stats;

    private PeerStore(DefaultMessageStore store, BrokerStatsManager stats) {
        this.store = store;
        this.stats = stats;
        this.storeRewritesDelay = scheduleSwitch(store) != null;
    }

    static PeerStore open(String root, Map<String, Object> configOverrides) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        Properties properties = quietProperties(root);
        configOverrides.forEach((key, value) -> properties.setProperty(key, String.valueOf(value)));
        MixAll.properties2Object(properties, config);
        BrokerStatsManager stats = new BrokerStatsManager("interop", false);
        PeerStore peer = new PeerStore(construct(config, stats), stats);
        if (!peer.store.load()) {
            peer.store.shutdown();
            throw new IOException("DefaultMessageStore.load() refused " + root);
        }
        peer.store.start();
        Method scheduleSwitch = scheduleSwitch(peer.store);
        if (scheduleSwitch != null) {
            scheduleSwitch.invoke(peer.store, BrokerRole.SLAVE);
        }
        return peer;
    }

    /** Waits until the queues and the index hold everything that the log holds. */
    void awaitDispatch() throws Exception {
        long deadline = System.nanoTime() + DISPATCH_TIMEOUT_MS * 1_000_000L;
        while (store.dispatchBehindBytes() > 0) {
            if (System.nanoTime() > deadline) {
                throw new IOException("dispatch is " + store.dispatchBehindBytes() + " bytes behind");
            }
            Thread.sleep(1);
        }
    }

    void close() throws Exception {
        awaitDispatch();
        store.shutdown();
        stats.shutdown();
    }

    private static Properties quietProperties(String root) {
        Properties properties = new Properties();
        properties.setProperty("storePathRootDir", root);
        properties.setProperty("storePathCommitLog", root + "/commitlog");
        properties.setProperty("haListenPort", "0");
        properties.setProperty("flushDiskType", "ASYNC_FLUSH");
        properties.setProperty("fileReservedTime", "100000");
        properties.setProperty("cleanFileForciblyEnable", "false");
        properties.setProperty("diskMaxUsedSpaceRatio", "95");
        properties.setProperty("diskSpaceWarningLevelRatio", "99");
        properties.setProperty("diskSpaceCleanForciblyRatio", "99");
        return properties;
    }

    private static DefaultMessageStore construct(MessageStoreConfig config, BrokerStatsManager stats)
            throws Exception {
        MessageArrivingListener deaf = (topic, queueId, offset, tags, time, bits, properties) -> { };
        BrokerConfig broker = new BrokerConfig();
        for (Constructor<?> constructor : DefaultMessageStore.class.getConstructors()) {
            try {
                if (constructor.getParameterCount() == 4) {
                    return (DefaultMessageStore) constructor.newInstance(config, stats, deaf, broker);
                }
                if (constructor.getParameterCount() == 5) {
                    return (DefaultMessageStore) constructor.newInstance(
                        config, stats, deaf, broker, new ConcurrentHashMap<>());
                }
            } catch (InvocationTargetException failure) {
                throw new IOException("cannot construct the store", failure.getCause());
            }
        }
        throw new IllegalStateException("no known DefaultMessageStore constructor");
    }

    private static Method scheduleSwitch(DefaultMessageStore store) {
        try {
            return store.getClass().getMethod("handleScheduleMessageService", BrokerRole.class);
        } catch (NoSuchMethodException absentSince5) {
            return null;
        }
    }
}
