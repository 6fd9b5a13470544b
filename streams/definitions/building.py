"""Builds a pipeline from its definition."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, iscoroutine
from typing import Any, NoReturn, cast, get_origin

from penstock.streams.base.errors import BadDefinition, MissingExtra, PenstockError
from penstock.streams.base.recorded import is_recorded
from penstock.streams.definitions.catalog import Kind, catalog, kind_of
from penstock.streams.definitions.definition import SPECIAL, FromEnvironment
from penstock.streams.definitions.names import imported, is_a, is_reference, public, shown
from penstock.streams.definitions.signatures import Option, Types, options_of
from penstock.streams.stages.sink_stage import Sink
from penstock.streams.stages.stream import Stream

__all__ = ["built"]

_ANY = Types((Any,))
_TOP = ("penstock", "source", "operators", "sinks", "shared", "stages")
# Lists of tables.
_TABLES = (("operators",), ("sinks",))
_VARIABLE = re.compile(r"\$(\$|\{([A-Za-z_]\w*)(?::-([^}]*))?\})")

Path = tuple[str | int, ...]


def built(data: Any) -> tuple[Stream[Any], list[Any]]:
    """The stream and the sinks of the pipeline with this definition.

    Raises BadDefinition, whose `path` says where in the data, for what is wrong with it.
    """
    return _Building(data).pipeline()


class _Building:
    def __init__(self, data: Any) -> None:
        self._data: dict[str, Any] = _table(data, (), "a definition")
        self._shared: dict[str, Any] = {}
        # Names that are being made, which must not need themselves.
        self._making: list[str] = []

    def pipeline(self) -> tuple[Stream[Any], list[Any]]:
        data = self._data
        for key in data:
            if key not in _TOP:
                _unknown((key,), key, _TOP, "a definition")
        if data.get("penstock", 1) != 1:
            raise BadDefinition(
                f"this is of version {data['penstock']!r}, and this penstock reads version 1",
                ("penstock",),
            )
        if "source" not in data:
            raise BadDefinition('there is no source: write [source] with use = "read_jsonl"', ())
        stream = self._stream(data, ())
        sinks = _list(data.get("sinks", []), ("sinks",))
        if not sinks:
            raise BadDefinition('there are no sinks: write [[sinks]] with use = "write_jsonl"', ())
        return stream, [self._sink(one, ("sinks", n)) for n, one in enumerate(sinks)]

    def _sink(self, data: Any, path: Path) -> Any:
        sink = self._part(data, path, "sink")
        if not isinstance(sink, Sink):
            _refuse(data, path, "a sink", sink)
        return cast(Any, sink)

    def _part(self, data: Any, path: Path, kind: Kind, prefix: str = "") -> Any:
        """A source, an operator or a sink; an error says so if the name is one of another kind."""
        try:
            return self.value(data, _ANY, path, prefix)
        except BadDefinition as error:
            name = data.get("use") if is_a(data, dict) else None
            if error.path != path or not isinstance(name, str):
                raise
            if (function := _known(name)) is not None:
                found = kind_of(function)
                if found not in (kind, "value"):
                    _refuse_kind(name, path, _A[kind], _A[found])
            elif is_reference(name) and kind in _CALLERS and _takes_something(name):
                caller, option = _CALLERS[kind]
                raise BadDefinition(
                    f'{error.message}; to call it with each event write use = "{caller}" and '
                    f'{option} = "{name}"',
                    path,
                ) from error
            raise

    # Streams.

    def _stream(self, data: Mapping[str, Any], path: Path) -> Any:
        place = (*path, "source")
        stream = self._part(data["source"], place, "source")
        if not is_a(stream, Stream):
            _refuse(data["source"], place, "a source", stream)
        result: Any = stream
        operators = _list(data.get("operators", []), (*path, "operators"))
        for n, one in enumerate(operators):
            place = (*path, "operators", n)
            operator = self._part(one, place, "operator", "ops.")
            if not callable(operator):
                _refuse(one, place, "an operator", operator)
            try:
                result = result.pipe(operator)
            except (PenstockError, TypeError, ValueError) as error:
                raise _at(place, error) from error
        return result

    # Values.

    def value(self, data: Any, types: Types, path: Path, prefix: str = "") -> Any:
        """What the data says, in a place that takes these types."""
        if isinstance(data, str):
            return self._text(data, types, path)
        if is_a(data, list):
            inner = types if types.tuples else types.inner or _ANY
            items = [self.value(one, inner, (*path, n)) for n, one in enumerate(data)]
            return tuple(items) if types.tuples else items
        if is_a(data, dict):
            return self._from_table(data, types, path, prefix)
        return data

    def _text(self, text: str, types: Types, path: Path) -> Any:
        if types.functions and is_reference(text):
            return _import(text, path)
        if types.functions and not types.texts:
            module, dot, last = text.rpartition(".")
            meant = f" (did you mean {module + ':' + last!r}?)" if dot else ""
            raise BadDefinition(
                f"{text!r} is not the name of a function, which is module:name{meant}", path
            )
        if "$" not in text:
            return text

        def value(found: re.Match[str]) -> str:
            whole, name, default = found.groups()
            if whole == "$":
                return "$"
            known: Any = os.environ.get(name, default)
            if known is None:
                raise BadDefinition(
                    f"the variable {name} of the environment is not set; ${{{name}:-text}} gives a "
                    "text for then, and $$ is a $",
                    path,
                )
            return str(known)

        made = _VARIABLE.sub(value, text)
        if made == text.replace("$$", "$"):
            return made
        expanded = FromEnvironment(made)
        expanded.text = text
        return expanded

    def _from_table(self, data: dict[str, Any], types: Types, path: Path, prefix: str) -> Any:
        if "use" in data:
            return self._call(data, path, prefix)
        if "source" in data:
            _only(data, ("source", "operators"), path)
            return self._stream(data, path)
        match data:
            case {"import": str(name), **others} if not others:
                if not is_reference(name):
                    raise BadDefinition(f"{name!r} is not module:name", (*path, "import"))
                return _import(name, path)
            case {"text": str(text), **others} if not others:
                return text
            case {"none": True, **others} if not others:
                return None
            case {"shared": str(name), **others} if not others:
                return self._from_shared(name, (*path, "shared"))
            case {"unnamed": str(text), **others} if not others:
                raise BadDefinition(f"this has no name by which it could be made: {text}", path)
            case {"secret": str(text), **others} if not others:
                raise BadDefinition(
                    f"the password of {text} is left out here: write the URL with a variable of "
                    "the environment, such as ${DATABASE_URL}",
                    path,
                )
            case _:
                inner = types.inner or _ANY
                return {key: self.value(one, inner, (*path, key)) for key, one in data.items()}

    def _from_shared(self, name: str, path: Path) -> Any:
        known = _table(self._data.get("shared", {}), ("shared",), "shared")
        if name not in known:
            raise BadDefinition(
                f"there is no {name!r} in [shared]{_near(name, known)}{_there_are(known)}", path
            )
        if name in self._making:
            raise BadDefinition(f"{' > '.join([*self._making, name])}: it needs itself", path)
        if name not in self._shared:
            self._making.append(name)
            self._shared[name] = self.value(known[name], _ANY, ("shared", name))
            self._making.pop()
        return self._shared[name]

    # Calls.

    def _call(self, data: dict[str, Any], path: Path, prefix: str) -> Any:
        name = data["use"]
        function = self._function(name, (*path, "use"), prefix)
        given = {key: one for key, one in data.items() if key != "use"}
        try:
            options = options_of(function)
        except (ValueError, TypeError):
            options = {}
        # A handler that is wrapped takes its own options behind the others.
        later = {
            key: given.pop(key)
            for key in list(given)
            if key in _WRAPPED and options and key not in options and is_recorded(function)
        }
        made = self._made(name, function, options, given, path)
        if later and not is_recorded(made):
            key = next(iter(later))
            _unknown((*path, key), key, list(options), name)
        if later:
            made = self._made(name, made, options_of(made), later, path)
        return made

    def _made(
        self,
        name: str,
        function: Callable[..., Any],
        options: dict[str, Option],
        given: dict[str, Any],
        path: Path,
    ) -> Any:
        args, keywords = self._arguments(name, options, given, path)
        try:
            made = function(*args, **keywords)
            if not iscoroutine(made):
                return made
            made.close()
            raise BadDefinition(
                f"{name} is an async function, and only a plain one can make a part of a pipeline",
                path,
            )
        except (BadDefinition, MissingExtra):
            raise
        except Exception as error:
            if is_reference(name) and not isinstance(error, PenstockError):
                raised = f"{type(error).__name__}: {error}".rstrip(": ")
                raise BadDefinition(f"{name} raised {raised}{_where(error)}", path) from error
            if not isinstance(error, PenstockError | TypeError | ValueError):
                raise
            # Most messages begin with the option, as it is written in Python.
            said = re.search(r"(?:^|\()(\w+)=", str(error))
            at = (*path, said[1]) if said is not None and said[1] in given else path
            raise _at(at, error) from error

    def _arguments(
        self, name: str, options: dict[str, Option], given: dict[str, Any], path: Path
    ) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        keywords: dict[str, Any] = {}
        takes_more = not options or any(
            one.kind is Parameter.VAR_KEYWORD and one.name not in given for one in options.values()
        )
        for key in given:
            if key not in options and key != "args" and not takes_more:
                _unknown((*path, key), key, list(options), name)
        # Before a list of arguments the others have places, too.
        has_list = any(one.kind is Parameter.VAR_POSITIONAL for one in options.values())
        by_place = [Parameter.POSITIONAL_ONLY, *[Parameter.POSITIONAL_OR_KEYWORD] * has_list]
        for option in options.values():
            if option.name not in given:
                if option.is_needed and "args" not in given:
                    raise BadDefinition(
                        f"{name} needs {option.name!r}: it takes {_listed(options)}", path
                    )
                if option.kind in by_place:
                    args.append(option.default)
                continue
            place = (*path, option.name)
            data = given[option.name]
            if type(data) is int and data > _STANDARD_ERROR and _is_path(option.types):
                raise BadDefinition(
                    f"{data} would be the number of an open descriptor, which a file cannot know: "
                    f'give the path as a text, "{data}"',
                    place,
                )
            if option.types == (bool,) and type(data) in (int, float, str):
                raise BadDefinition(f"{data!r} is neither true nor false", place)
            if option.kind is Parameter.VAR_POSITIONAL:
                items = _list(data, place)
                args += [self.value(one, option.types, (*place, n)) for n, one in enumerate(items)]
            elif option.kind is Parameter.VAR_KEYWORD:
                table = _table(data, place, option.name)
                for key, one in table.items():
                    keywords[key] = self.value(one, option.types, (*place, key))
            elif option.kind in by_place:
                args.append(self.value(data, option.types, place))
            else:
                keywords[option.name] = self.value(data, option.types, place)
        for key, data in given.items():
            if key in options:
                continue
            if key == "args":
                args = [
                    self.value(one, _ANY, (*path, "args", n))
                    for n, one in enumerate(_list(data, (*path, "args")))
                ]
            else:
                keywords[key] = self.value(data, _ANY, (*path, key))
        return args, keywords

    def _function(self, name: Any, path: Path, prefix: str) -> Any:
        if not isinstance(name, str):
            raise BadDefinition(f"{name!r} is not a name", path)
        if is_reference(name):
            function = _import(name, path)
            if not callable(function):
                raise BadDefinition(
                    f"{name} is {shown(function)}, which cannot be called; "
                    f'{{ import = "{name}" }} stands for itself',
                    path,
                )
            return function
        for known in (name, f"ops.{name}"):
            try:
                function = public(known)
            except AttributeError:
                continue
            if callable(function):
                return function
        raise BadDefinition(
            f"there is no {name!r}{_near(name, catalog())}; a function of your own is module:name",
            path,
        )


# What the functions take that wrap handlers, as in `in_threads(8)(handler)`.
_WRAPPED = ("handler",)


_A = {
    "source": "a source",
    "operator": "an operator",
    "sink": "a sink",
    "value": "a value of an option",
}

# What calls a function with each event, and the option that takes it.
_CALLERS = {"operator": ("adaptive_flat_map", "handler"), "sink": ("for_each", "function")}

# The descriptors up to this one are those of every process.
_STANDARD_ERROR = 2


def _known(name: str) -> Callable[..., Any] | None:
    """What penstock has under a name."""
    return catalog().get(name) or catalog().get(f"ops.{name}")


def _takes_something(name: str) -> bool:
    """Whether the function of this name, which is there, cannot be called with nothing."""
    try:
        return any(one.is_needed for one in options_of(imported(name)).values())
    except Exception:
        return False


def _is_path(types: Types) -> bool:
    return any((get_origin(one) or one) is os.PathLike for one in types)


def _import(name: str, path: Path) -> Any:
    try:
        return imported(name)
    except ModuleNotFoundError as error:
        module, _, rest = name.partition(":")
        if module.endswith(".py"):
            meant = f"{module.removesuffix('.py')}:{rest}"
            raise BadDefinition(
                f"{name}: a module has no .py in its name (did you mean {meant!r}?)", path
            ) from error
        if error.name is not None and not name.startswith(error.name):
            raise BadDefinition(f"{name} cannot be imported: {error}", path) from error
        raise BadDefinition(
            f"there is no module {error.name!r} for {name}: it is looked for beside the file and "
            "among what is installed; a field with such a name is { text = " + f'"{name}" }}',
            path,
        ) from error
    except Exception as error:
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        raise BadDefinition(
            f"{name} cannot be imported: {kind}{error}{_where(error)}", path
        ) from error


def _where(error: Exception) -> str:
    """The line of the user's module that raised it, if one did."""
    from traceback import extract_tb

    here = os.path.dirname(__file__)
    frames = [
        one for one in extract_tb(error.__traceback__) if not one.filename.startswith(("<", here))
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _at(path: Path, error: Exception) -> BadDefinition:
    return BadDefinition(str(error), path)


def _table(data: Any, path: Path, what: str) -> dict[str, Any]:
    if not is_a(data, dict):
        raise BadDefinition(f"{what} is a table, not {data!r}", path)
    table: dict[str, Any] = data
    return table


def _list(data: Any, path: Path) -> list[Any]:
    if not is_a(data, list):
        hint = f": write [[{path[-1]}]]" if path in _TABLES else f", not {data!r}"
        raise BadDefinition(f"{path[-1]} is a list{hint}", path)
    items: list[Any] = data
    return items


def _only(data: Mapping[str, Any], known: Sequence[str], path: Path) -> None:
    for key in data:
        if key not in known:
            _unknown((*path, key), key, known, "a stream")


def _refuse(data: Any, path: Path, what: str, found: Any) -> NoReturn:
    if path == ("source",) and is_a(data, list):
        raise BadDefinition("there is one source: write [source]", path)
    table: dict[str, Any] = data if is_a(data, dict) else {}
    if table and not any(key in table for key in SPECIAL):
        raise BadDefinition(
            "there is no `use`, which says by its name what this is, as in use = 'map'", path
        )
    name = table.get("use", data)
    _refuse_kind(name, path, what, _kind(found))


def _refuse_kind(name: Any, path: Path, what: str, found: str) -> NoReturn:
    raise BadDefinition(f"{name!r} is not {what}, but {found}", path)


def _kind(thing: Any) -> str:
    """What a thing is in a pipeline: the types of sources and sinks have names for us only."""
    if is_a(thing, Stream):
        return "a source"
    return "a sink" if isinstance(thing, Sink) else shown(thing)


def _unknown(path: Path, key: str, known: Iterable[str], what: str) -> NoReturn:
    known = list(known)
    raise BadDefinition(
        f"{what} has no option {key!r}{_near(key, known)}. It takes {', '.join(known)}", path
    )


def _near(name: str, known: Iterable[str]) -> str:
    found = get_close_matches(name, list(known), 1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _there_are(known: Iterable[str]) -> str:
    names = ", ".join(known)
    return f"; there are {names}" if names else ""


def _listed(options: Mapping[str, Option]) -> str:
    return ", ".join(options)
