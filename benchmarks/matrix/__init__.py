"""The cost per event for every handler and every option, next to the same job by hand."""
