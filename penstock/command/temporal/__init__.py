"""The sub-commands about temporal logic and workflows: check, monitor, mine and learn."""
