"""The refusal of stages that read a field which no value of their stream has.

What is known of the values is the type that a source makes of its input. It is known as far down
as stages send on the values that came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from penstock.streams.base.errors import BuildError
from penstock.streams.protocol.stage_info import StageInfo

__all__ = ["as_changed", "decoded_type", "refuse_missing"]


def decoded_type(decode: object) -> Any:
    """The type of the values that `decode` makes, if it is a type of msgspec or pydantic, or a
    decoder of one; None where it is not known."""
    if hasattr(decode, "__struct_fields__") or hasattr(decode, "model_validate_json"):
        return decode
    # A Decoder of msgspec, a TypeAdapter of pydantic.
    return getattr(decode, "type" if hasattr(decode, "dec_hook") else "_type", None)


def as_changed(values: Any) -> Any:
    """What is still known of values of this type behind a function that may add fields to them."""
    if _is_typed_dict(values):
        return Mapping
    kinds = _alternatives(values)
    return None if any(getattr(kind, "__dictoffset__", 0) for kind in kinds) else values


def refuse_missing(stage: StageInfo, values: Any) -> None:
    """Raise BuildError if `stage` reads a field, by its name or place, that values of this type
    cannot have."""
    for key in stage.placement.reads if values is not None else ():
        kinds = [kind for kind in _alternatives(values) if kind is not type(None)]
        if isinstance(key, str | int) and kinds and all(_lacks(kind, key) for kind in kinds):
            fields = list(dict.fromkeys(name for kind in kinds for name in _fields(kind)))
            names = " and ".join(kind.__name__ for kind in kinds)
            what = f"the field {key!r}" if isinstance(key, str) else f"item {key}"
            raise BuildError(
                f"{stage} reads {what}, which values of the type {names} do not have: they have "
                f"{', '.join(fields) or 'no fields'}. Name one of these, or give a function of the "
                "value"
            )


def _alternatives(values: Any) -> Iterable[Any]:
    """The possible types of values, without what only types are told."""
    origin = get_origin(values)
    if origin is Annotated:
        return _alternatives(get_args(values)[0])
    if origin in (Union, UnionType):
        return [kind for one in get_args(values) for kind in _alternatives(one)]
    return (origin or values,)


def _fields(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a record type."""
    if _is_typed_dict(kind):
        return tuple(sorted(kind.__required_keys__ | kind.__optional_keys__))
    for names in ("__struct_fields__", "model_fields", "__dataclass_fields__", "_fields"):
        if hasattr(kind, names):
            return tuple(getattr(kind, names))
    return ()


def _is_typed_dict(kind: Any) -> bool:
    # Also one of typing_extensions, which pydantic wants.
    return hasattr(kind, "__required_keys__")


def _lacks(kind: Any, key: str | int) -> bool:
    """Whether no value of this type can have the field; False where that is not known."""
    known: tuple[object, ...] = _fields(kind)
    if _is_typed_dict(kind):
        more = getattr(kind, "__pydantic_config__", {}).get("extra") == "allow"
        return not more and key not in known
    if not isinstance(kind, type) or not _is_record(kind) or _is_open(kind):
        return False
    if isinstance(key, int):
        return not hasattr(kind, "__getitem__")
    return not hasattr(kind, key) and key not in known


def _is_record(kind: Any) -> bool:
    if hasattr(kind, "__struct_fields__") or hasattr(kind, "model_fields"):
        return True
    bases: tuple[type, ...] = kind.__mro__
    is_named = tuple in bases and hasattr(kind, "_fields")
    return is_named or is_dataclass(kind)


def _is_open(kind: Any) -> bool:
    """Whether values may have fields that the type does not name."""
    if hasattr(kind, "model_fields"):
        # Validators may return another object.
        validates = getattr(kind.__pydantic_decorators__, "model_validators", None)
        if validates or kind.model_config.get("extra") == "allow":
            return True
    bases: tuple[type, ...] = kind.__mro__
    own = {
        name
        for base in bases
        if base not in (object, tuple) and not base.__module__.startswith(("pydantic.", "msgspec"))
        for name in vars(base)
    }
    if own & {"__getattr__", "__getattribute__", "__getitem__"}:
        return True
    parameters = getattr(kind, "__dataclass_params__", None)
    is_made = parameters is None or parameters.init
    return bool(kind.__dictoffset__) and (
        not is_made or not own.isdisjoint(("__post_init__", "__new__"))
    )
