"""The default limiter against simulated plants, in virtual time: `python -m benchmarks.limits`."""
