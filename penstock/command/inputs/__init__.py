"""The events of a command: of files in one of the known formats, or of a table of a database."""
