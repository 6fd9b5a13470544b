"""What users call on a pipeline, and the overrides with which engines run one."""
