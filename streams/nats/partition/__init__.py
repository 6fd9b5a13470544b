"""One partition: its messages in order, its floor, its duplicates and its doubts."""
