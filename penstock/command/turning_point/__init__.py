"""The response time of a pipeline as a function of the rate of its events."""
