"""Instructions for installing an extra, matching the way penstock was installed."""

from __future__ import annotations

import os
import sys
from typing import Any

from penstock.streams.base.errors import MissingExtra

__all__ = ["install_command", "missing_extra", "require"]


def missing_extra(what: str, extra: str) -> MissingExtra:
    """The error that `what`, a sentence without its full stop, needs the extra `extra`."""
    return MissingExtra(f"{what}: {install_command(extra)}")


def require(module: str, what: str, extra: str) -> None:
    """Raise MissingExtra unless `module` can be imported, without importing it; `what` as above."""
    # Imported here: few pipelines need it.
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise missing_extra(what, extra)


def install_command(extra: str) -> str:
    """The shell command that installs `extra` beside the penstock that is running.

    It names the checkout, archive or repository from which penstock was installed, as the packaging
    standard on direct URLs records it (PEP 610); so no unrelated package of the same name is
    fetched from an index. Environments of pipx and uv have their own command.
    """
    from shlex import quote

    requirement, editable = _requirement(extra)
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx install --force {quote(requirement)}"
    if os.path.exists(os.path.join(sys.prefix, "uv-receipt.toml")):
        return f"uv tool install --force {quote(requirement)}"
    return f"pip install {'-e ' if editable else ''}{quote(requirement)}"


def _requirement(extra: str) -> tuple[str, bool]:
    """The requirement for an installer, and whether the installation is editable."""
    # Imported here, like everything that only errors need: slow to import.
    from urllib.parse import unquote, urlsplit

    origin = _origin()
    if origin is None:
        # Running from a checkout that was not installed.
        package = sys.modules["penstock"].__path__[0]
        checkout = os.path.dirname(os.path.abspath(package))
        return f"{checkout}[{extra}]", False
    url = origin.get("url")
    if url is None:
        return f"penstock[{extra}]", False
    if "dir_info" in origin:
        folder = unquote(urlsplit(str(url)).path)
        return f"{folder}[{extra}]", bool(origin["dir_info"].get("editable"))
    control = origin.get("vcs_info", {}).get("vcs")
    return f"penstock[{extra}] @ {f'{control}+' if control else ''}{url}", False


# Any: a document of JSON.
def _origin() -> dict[str, Any] | None:
    """The origin from which penstock was installed; empty for an index, None if not installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        document = distribution("penstock").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    if document is None:
        return {}
    from orjson import loads

    origin: dict[str, Any] = loads(document)
    return origin
