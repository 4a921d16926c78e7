import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.LongHistogram;
import io.opentelemetry.api.metrics.LongUpDownCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.api.metrics.MeterProvider;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import io.opentelemetry.sdk.metrics.Aggregation;
import io.opentelemetry.sdk.metrics.ExplicitBucketHistogramOptions;
import io.opentelemetry.sdk.metrics.InstrumentSelector;
import io.opentelemetry.sdk.metrics.View;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;

/** The same application as otlp_application.py, with OpenTelemetry's SDK for Java. */
final class OtlpApplication {
    private static final AttributeKey<String> ROUTE = AttributeKey.stringKey("route");
    private static final AttributeKey<Long> STATUS = AttributeKey.longKey("status");
    private static final AttributeKey<String> POOL = AttributeKey.stringKey("pool");

    private OtlpApplication() {}

    public static void main(String[] arguments) throws InterruptedException {
        Aggregation explicit = Aggregation.explicitBucketHistogram(
                ExplicitBucketHistogramOptions.builder().setBucketBoundaries(List.of(10.0, 100.0, 500.0)).build());
        MeterProvider provider =
                AutoConfiguredOpenTelemetrySdk.builder()
                        .addMeterProviderCustomizer(
                                (builder, config) ->
                                        builder.registerView(
                                                InstrumentSelector.builder().setName("size").build(),
                                                View.builder().setAggregation(explicit).build()))
                        .build()
                        .getOpenTelemetrySdk()
                        .getMeterProvider();
        Meter meter = provider.get("shop");
        long pid = ProcessHandle.current().pid();
        CountDownLatch collected = new CountDownLatch(1);
        meter.gaugeBuilder("process.pid").ofLongs().buildWithCallback(result -> {
            collected.countDown();
            result.record(pid);
        });
        collected.await();
        LongCounter requests = meter.counterBuilder("requests").build();
        LongCounter sameName =
                provider.meterBuilder("shop.payment").setInstrumentationVersion("1.2").build()
                        .counterBuilder("requests").build();
        LongUpDownCounter active = meter.upDownCounterBuilder("active").build();
        LongHistogram size = meter.histogramBuilder("size").ofLongs().build();
        LongHistogram latency = meter.histogramBuilder("latency").ofLongs().build();
        LongCounter late = null;
        Random chance = new Random(pid);
        long begin = System.nanoTime();
        while (true) {
            String route = chance.nextBoolean() ? "/" : "/cart";
            Attributes attributes = Attributes.of(ROUTE, route, STATUS, chance.nextBoolean() ? 200L : 500L);
            requests.add(chance.nextInt(1_000), attributes);
            sameName.add(1, attributes);
            active.add(new int[] {-1, 1, 2}[chance.nextInt(3)], Attributes.of(POOL, chance.nextBoolean() ? "a" : "b"));
            size.record(chance.nextInt(1_000), Attributes.of(ROUTE, route));
            latency.record(1 + chance.nextInt(99_999));
            if (System.nanoTime() - begin > 1_000_000_000L) {
                late = late != null ? late : meter.counterBuilder("late").build();
                late.add(1); // a stream that begins later is no restart
            }
            Thread.sleep(2);
        }
    }
}
