"""The default limiter on real plants, next to the best fixed limit that a sweep finds."""
