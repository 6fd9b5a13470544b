"""A pipeline whose members share a topic: its topics, its dead letters and a view of them."""
