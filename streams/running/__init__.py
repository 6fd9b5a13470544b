"""A pipeline that is running: its sinks, its handle, its report."""
