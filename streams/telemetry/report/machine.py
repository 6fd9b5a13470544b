"""The machine and the versions with which something was measured."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from penstock.streams.base.compiled import form

__all__ = ["machine"]

_PACKAGES = ("penstock", "reactivex", "uvloop", "orjson")


def machine() -> dict[str, str]:
    """Facts about this machine by name, without its name in the network."""
    cores = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    of_them = "" if usable == cores else f", {usable} for this process"
    found = {
        "processor": _processor(),
        "cores": f"{cores}{of_them}",
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()} ({platform.machine()})",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = f"{version(name)} ({form()})" if name == "penstock" else version(name)
    return {name: text for name, text in found.items() if text}


def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def _memory() -> str:
    with suppress(AttributeError, OSError, ValueError):
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return f"{size / 2**30:.1f} GiB"
    return ""
