"""States in a changelog of Kafka, by transactions, and a copy of them in a local file."""
