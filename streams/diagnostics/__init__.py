"""What watches a running: a blocked event loop, and histograms."""
