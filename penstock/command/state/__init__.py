"""Looking at the states in a store, and changing them."""
