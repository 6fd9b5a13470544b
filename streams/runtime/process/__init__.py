"""The process that a pipeline runs in: its signals, its end, its loading by another."""
