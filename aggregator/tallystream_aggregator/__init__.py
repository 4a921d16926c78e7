"""The aggregator: a changelog table over the topic `metrics`, its sums, and the sinks that ship them to stores."""
