"""Operators, one per module, each with its documentation at the top; `penstock` has their names."""

from __future__ import annotations

if __name__ != "penstock.operators":
    # Else each module would be there twice, in a checkout.
    raise ImportError(
        "'operators' is 'penstock.operators': write `from penstock import ...`",
        name=__name__,
    )
