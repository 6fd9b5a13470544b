"""The sub-commands about the pipeline of a file: build it, draw it, run it."""
