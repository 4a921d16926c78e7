"""The metrics, and the samples and sketches of histograms."""
