"""The source and the sink of streams of JetStream that others own."""
