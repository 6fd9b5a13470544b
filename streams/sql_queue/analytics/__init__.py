"""Analytics of a queue: its numbers now and over time, and its history with other pollers."""
