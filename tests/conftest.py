"""What every test may ask for: the public test kit's own fixtures."""

from __future__ import annotations

pytest_plugins = ["streams.testing.plugin"]
