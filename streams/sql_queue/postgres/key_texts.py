"""The texts of keys in PostgreSQL, as expressions: of a column, or of a field of a payload."""

from __future__ import annotations

__all__ = [
    "CREATE_KEY_FUNCTION",
    "CREATE_TEXT_FUNCTION",
    "HAS_FUNCTION",
    "LONGEST_KEY",
    "SAME_TEXTS",
    "equal_key",
    "field_in_json",
    "key_in_json",
    "short_key",
]

# The key of a payload: one that is too long for an index is hashed, and all keys that the server
# cannot read (\u0000, half a surrogate pair, a character missing in its encoding) are one key.
LONGEST_KEY = 1000
_SHORT = "'sha256:' || encode(sha256(convert_to({key}, 'UTF8')), 'hex')"
CREATE_KEY_FUNCTION = f"""CREATE FUNCTION {{key_function}}(payload json, field text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE key text;
BEGIN
    key := coalesce(payload ->> field, '');
    RETURN CASE WHEN octet_length(key) > {LONGEST_KEY} THEN {_SHORT.format(key="key")} ELSE key END;
EXCEPTION WHEN OTHERS THEN
    RETURN chr(1) || 'unreadable';
END $$"""
# The text of most other values depends on settings of the session, such as its time zone. Keys that
# are equal must have one text for all readers.
SAME_TEXTS = frozenset(
    {"text", "character varying", "smallint", "integer", "bigint", "numeric", "boolean", "uuid"}
)
CREATE_TEXT_FUNCTION = """CREATE FUNCTION {key_function}(value anyelement) RETURNS text
LANGUAGE plpgsql STABLE SET TimeZone = 'UTC' SET DateStyle = 'ISO, YMD'
SET IntervalStyle = 'postgres' SET extra_float_digits = 1 SET bytea_output = 'hex'
SET lc_monetary = 'C'
AS $$ BEGIN RETURN value::text; END $$"""
HAS_FUNCTION = "SELECT to_regprocedure(:function) IS NOT NULL"


def short_key(key: str) -> str:
    """An expression for a key that cannot be unreadable."""
    return (
        f"CASE WHEN octet_length({key}) > {LONGEST_KEY} THEN {_SHORT.format(key=key)} "
        f"ELSE coalesce({key}, '') END"
    )


def key_in_json(payload: str, field: str, function: str) -> str:
    """An expression for the key in a payload of type json.

    Nearly all payloads are short and have no escapes: those need no function, which would take many
    times as long.
    """
    return (
        f"CASE WHEN octet_length({payload}::text) <= {LONGEST_KEY} "
        f"AND strpos({payload}::text, '\\u') = 0 "
        f"THEN coalesce({payload} ->> {field}, '') ELSE {function}({payload}, {field}) END"
    )


# JSON has several texts of one number, and Python takes true for 1 and false for 0.
_IS_OTHER_TEXT = r"'^(true|false|-0|-?[0-9]+(\.[0-9]+([eE][+-]?[0-9]{1,3})?|[eE][+-]?[0-9]{1,3}))$'"
_NO_ZEROS = r"'\.0*$|(\.[0-9]*[1-9])0*$', '\1'"


def equal_key(key: str) -> str:
    """An expression for a key whose text is the same for numbers that are equal.

    A text that reads as a number is taken for one: then two keys share a lease, which costs little.
    """
    return (
        f"CASE WHEN {key} ~ {_IS_OTHER_TEXT} THEN CASE {key} WHEN 'true' THEN '1' "
        f"WHEN 'false' THEN '0' ELSE regexp_replace(({key})::numeric::text, {_NO_ZEROS}) END "
        f"ELSE {key} END"
    )


def field_in_json(payload: str, field: str) -> str:
    """An expression for a field of a payload of type json, for statistics.

    Escapes that the server may be unable to read (\\u0000, surrogates) become question marks.
    """
    readable = rf"regexp_replace({payload}::text, '\\u(0000|d[89a-f]..)', '\\u003f', 'gi')"
    return (
        f"CASE WHEN strpos({payload}::text, '\\u') = 0 THEN {payload} ->> {field} "
        f"ELSE ({readable})::json ->> {field} END"
    )
