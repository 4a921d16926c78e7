import io.opentelemetry.api.common.AttributeKey;
import io.opentelemetry.api.common.Attributes;
import io.opentelemetry.api.metrics.DoubleHistogram;
import io.opentelemetry.api.metrics.LongCounter;
import io.opentelemetry.api.metrics.Meter;
import io.opentelemetry.sdk.autoconfigure.AutoConfiguredOpenTelemetrySdk;
import java.util.Map;

/** Places as many orders as the argument says, counts them, and measures how long each one takes. */
final class Orders {
    /** What applies unless a variable of the environment, such as OTEL_SERVICE_NAME, says otherwise. */
    private static final Map<String, String> SETTINGS =
            Map.of(
                    "otel.service.name", "shop",
                    "otel.exporter.otlp.protocol", "http/protobuf",
                    "otel.exporter.otlp.metrics.temporality.preference", "cumulative",
                    "otel.exporter.otlp.metrics.default.histogram.aggregation", "BASE2_EXPONENTIAL_BUCKET_HISTOGRAM",
                    "otel.metric.export.interval", "1000",
                    "otel.logs.exporter", "none",
                    "otel.traces.exporter", "none");

    private Orders() {}

    public static void main(String[] arguments) {
        // When the process ends normally, the SDK exports a last time.
        Meter meter =
                AutoConfiguredOpenTelemetrySdk.builder()
                        .addPropertiesSupplier(() -> SETTINGS)
                        .build()
                        .getOpenTelemetrySdk()
                        .getMeter("shop");
        LongCounter placed = meter.counterBuilder("orders.placed").build();
        DoubleHistogram seconds = meter.histogramBuilder("orders.seconds").setUnit("s").build();
        for (int number = 0; number < Integer.parseInt(arguments[0]); number++) {
            long begin = System.nanoTime();
            place(number);
            placed.add(1, Attributes.of(AttributeKey.stringKey("country"), number % 4 == 0 ? "fr" : "de"));
            seconds.record((System.nanoTime() - begin) / 1e9);
        }
    }

    /** Does the application's work. */
    private static void place(int number) {}
}
