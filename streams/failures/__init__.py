"""What a stage does with an event that fails: error policies and dead letters."""
