"""Sinks for results, one per module; `penstock` has their names."""

from __future__ import annotations

if __name__ != "penstock.sinks":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'sinks' is 'penstock.sinks': write `from penstock import ...`",
        name=__name__,
    )
