"""State that survives: the states of keys, and the commits that write them with what is done."""
