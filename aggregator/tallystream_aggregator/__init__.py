"""The aggregator: a changelog table over the topic `metrics`, its sums, and the stores they are shipped to."""
