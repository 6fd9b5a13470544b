"""Credentials and trusted certificates from environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.streams.base.errors import BuildError
from penstock.streams.base.extras import missing_extra

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["credentials"]

# The required content of a file: without it the client would search for ever.
_IN_CREDS = ("BEGIN NATS USER JWT", "BEGIN USER NKEY SEED")


def credentials(environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Arguments of `nats.connect`, from the variables that the `nats` CLI uses too.

    NATS_USER and NATS_PASSWORD, or NATS_TOKEN, or NATS_CREDS (a file with a JWT and a seed), or
    NATS_NKEY (a file with a seed) are the credentials if the address has none; NATS_CA (a file) has
    the certificates to trust, NATS_CERT and NATS_KEY (files) are the client's own. Raises
    BuildError for a file that cannot be read, which it names, and MissingExtra without the package
    nkeys.
    """
    given = {name: value for name, value in (environment or os.environ).items() if value}
    options: dict[str, Any] = {}
    for name, option in (("NATS_USER", "user"), ("NATS_PASSWORD", "password")):
        if name in given:
            options[option] = given[name]
    if len(options) == 1:
        raise BuildError("NATS_USER and NATS_PASSWORD go together: set both, or NATS_TOKEN")
    if "NATS_TOKEN" in given:
        options["token"] = given["NATS_TOKEN"]
    if "NATS_CREDS" in given:
        _needs_nkeys("NATS_CREDS")
        text = _text_of("NATS_CREDS", given)
        if not all(words in text for words in _IN_CREDS):
            raise BuildError(
                f"NATS_CREDS={given['NATS_CREDS']}: it contains no JWT and seed of a user, as "
                "`nsc generate creds` writes them"
            )
        options["user_credentials"] = given["NATS_CREDS"]
    elif "NATS_NKEY" in given:
        _needs_nkeys("NATS_NKEY")
        if not _text_of("NATS_NKEY", given).strip().startswith("SU"):
            raise BuildError(
                f"NATS_NKEY={given['NATS_NKEY']}: it contains no seed of a user, which begins "
                "with SU"
            )
        options["nkeys_seed"] = given["NATS_NKEY"]
    tls = _tls(given)
    if tls is not None:
        options["tls"] = tls
    return options


def _tls(given: Mapping[str, str]) -> SSLContext | None:
    if not {"NATS_CA", "NATS_CERT", "NATS_KEY"} & set(given):
        return None
    import ssl

    if ("NATS_CERT" in given) != ("NATS_KEY" in given):
        raise BuildError("NATS_CERT and NATS_KEY go together: a certificate, and its private key")
    files = ", ".join(f"{n}={given[n]}" for n in ("NATS_CA", "NATS_CERT", "NATS_KEY") if n in given)
    try:
        context = ssl.create_default_context(cafile=given.get("NATS_CA"))
        if "NATS_CERT" in given:
            context.load_cert_chain(given["NATS_CERT"], given["NATS_KEY"])
    except OSError as error:
        raise BuildError(f"{files}: cannot be used for TLS: {error}") from error
    return context


def _text_of(name: str, given: Mapping[str, str]) -> str:
    try:
        with open(given[name], encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise BuildError(f"{name}={given[name]}: cannot be read: {error}") from error


def _needs_nkeys(name: str) -> None:
    from importlib.util import find_spec

    if find_spec("nkeys") is None:
        raise missing_extra(f"{name} needs the package nkeys", "cluster")
