"""Adapters: plain Rx, iterables, third-party subscribers and users' stages."""
