"""States in a JetStream stream, by atomic batches, and a copy of them in a local file."""
