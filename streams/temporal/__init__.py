"""What must happen, and in which order: formulas of temporal logic and their automata."""
