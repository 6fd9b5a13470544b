"""`python -m benchmarks.cluster [NAME ...]`: the figures, one module each."""

from __future__ import annotations

import sys
from importlib import import_module

NAMES = ("keyed", "work", "states", "kafka", "kafka_states")

if __name__ == "__main__":
    chosen = sys.argv[1:] or NAMES
    for name in chosen:
        if name not in NAMES:
            sys.exit(f"{name} is none of {', '.join(NAMES)}")
        import_module(f"benchmarks.cluster.{name}").main()
