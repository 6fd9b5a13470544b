"""Records of a run: what passed each arrow, how long it took, the last errors."""
