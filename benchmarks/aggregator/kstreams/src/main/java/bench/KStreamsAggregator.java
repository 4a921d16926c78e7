package bench;

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The original topology: topic metrics -> KTable by (instance, metric) -> group by metric name
 * -> reduce(add, subtract) into store "aggregates" -> topic metrics-agg.
 *
 * Usage: KStreamsAggregator MODE INPUT OUTPUT [key=value ...]
 *   MODE       eos             exactly_once_v2, commit 100 ms, default record cache and linger
 *              lowlat-linger0  at_least_once, cache 0, commit 100 ms, producer linger 0 (Streams' own is 100 ms)
 *   key=value  bootstrap.servers, state.dir, application.id, or any other Streams setting
 *
 * Says "STATE RUNNING" on stdout when Streams does. Ends by SIGTERM.
 */
public final class KStreamsAggregator {

    static Topology topology(String input, String output) {
        Serde<String> string = Serdes.String();
        Serde<Metric> metric = Metric.serde();
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, Metric> latest = builder.stream(input, Consumed.with(string, metric))
                .selectKey((instance, m) -> instance + '|' + m.name())
                .toTable(Materialized.<String, Metric, KeyValueStore<Bytes, byte[]>>as("latest")
                        .withKeySerde(string).withValueSerde(metric));
        latest.groupBy((series, m) -> KeyValue.pair(m.name(), m), Grouped.with("by-metric", string, metric))
                .reduce(Metric::plus, Metric::minus,
                        Materialized.<String, Metric, KeyValueStore<Bytes, byte[]>>as("aggregates")
                                .withKeySerde(string).withValueSerde(metric))
                .toStream()
                .to(output, Produced.with(string, metric));
        return builder.build();
    }

    static Properties settings(String mode) {
        Properties p = new Properties();
        p.put(StreamsConfig.APPLICATION_ID_CONFIG, "metrics-aggregator");
        p.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        p.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        p.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        p.put("consumer.auto.offset.reset", "earliest");
        switch (mode) {
            case "eos" -> p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
            case "lowlat-linger0" -> {
                p.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE);
                p.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0L);
                p.put("producer.linger.ms", 0);
            }
            default -> throw new IllegalArgumentException("unknown mode " + mode);
        }
        return p;
    }

    public static void main(String[] args) throws InterruptedException {
        Properties p = settings(args[0]);
        for (int i = 3; i < args.length; i++) {
            int eq = args[i].indexOf('=');
            p.put(args[i].substring(0, eq), args[i].substring(eq + 1));
        }
        Topology topology = topology(args[1], args[2]);
        System.err.println(topology.describe());
        KafkaStreams streams = new KafkaStreams(topology, p);
        streams.setStateListener((now, before) -> System.out.println("STATE " + now));
        CountDownLatch closed = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(20));
            closed.countDown();
        }));
        streams.start();
        closed.await();
    }

    private KStreamsAggregator() {
    }
}
