"""How long what is in `penstock.streams.temporal` takes, next to the bounds that are set for it."""
