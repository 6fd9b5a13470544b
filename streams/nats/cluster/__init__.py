"""A worker of a pipeline on many machines, and the pipeline's streams on the servers."""
