"""The documentation site: see CONTRIBUTING.md."""
