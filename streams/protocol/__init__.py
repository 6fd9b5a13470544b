"""What stages say to each other: events, demand, acknowledgements, ends."""
