"""penstock: reactive pipelines that never take in more than they can finish."""
