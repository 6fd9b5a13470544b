"""What is recorded of a running pipeline, and how it is shown: a live page, and metrics."""
