"""The command penstock: run event pipelines that never accept more than they can process."""
