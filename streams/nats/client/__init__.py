"""The connection to NATS: addresses, credentials, requests, what is under way."""
