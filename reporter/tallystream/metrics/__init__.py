"""The metrics: counters, gauges, meters, histograms and timers, and what histograms keep of their values."""
