"""Apache Kafka: records read in demand, offsets committed, results written."""
