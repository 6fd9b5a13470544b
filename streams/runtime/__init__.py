"""One run of a pipeline: its context, its handle, its statistics and its end."""
