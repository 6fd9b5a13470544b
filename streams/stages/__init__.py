"""The base classes of stages, streams and sinks, on the run that they belong to."""
