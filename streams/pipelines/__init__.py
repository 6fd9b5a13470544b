"""What users hold: streams with their methods, pipelines, and the running of one."""
