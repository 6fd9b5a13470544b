"""States of keys, and the commits that write them together with the marks of finished events."""
