"""The protocol between stages: events, demand, acknowledgements, terminal signals."""
