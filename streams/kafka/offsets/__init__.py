"""Which records of a topic are finished, committed, or in doubt."""
