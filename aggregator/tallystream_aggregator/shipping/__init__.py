"""Which sums are shipped, and the points that they become. No Spark."""
