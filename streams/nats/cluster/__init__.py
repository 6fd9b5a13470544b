"""A worker of a pipeline on many machines, and what a pipeline has on the servers."""
