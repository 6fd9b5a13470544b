"""How long what is in `streams.temporal` takes, next to the bounds that are set for it."""
