"""Where other protocols meet ours: plain Rx, iterables, foreign subscribers and stages."""
