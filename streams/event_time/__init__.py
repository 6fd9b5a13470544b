"""Event time: when events have happened, and how far their time has come."""
