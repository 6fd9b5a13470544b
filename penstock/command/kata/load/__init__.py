"""The load of the kata: its events, when each is due, and what handling one costs."""
