"""What every test may ask for: the public test kit's own fixtures."""

from __future__ import annotations

import os

from hypothesis import settings

pytest_plugins = ["streams.testing.plugin", "tests.servers.plugin"]

# A deadline would be an assertion about the machine. Where the same commit must give the same
# answer twice, the examples are the same ones too; elsewhere new ones are tried.
settings.register_profile("default", deadline=None)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("repeatable" if os.environ.get("CI") else "default")
