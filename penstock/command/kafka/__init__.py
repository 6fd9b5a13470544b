"""The sub-commands about a pipeline whose members share a topic of Apache Kafka."""
