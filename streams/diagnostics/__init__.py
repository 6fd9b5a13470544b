"""Detection of blocked event loops, and latency histograms."""
