"""What has become of every event, and how that is kept until the next run."""
