"""The command `penstock`: a module for each sub-command, imported when it is called."""
