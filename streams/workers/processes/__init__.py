"""Worker processes: forked or spawned, and the sockets to them."""
