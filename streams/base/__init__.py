"""The lowest room: what any part may import."""
