"""The sub-commands about pipelines and work pools on NATS JetStream."""
