"""The statements of a queue in SQLite: constant texts, names quoted, values as parameters."""

from __future__ import annotations

__all__ = [
    "CLAIM",
    "CLAIM_OF_KEYS",
    "CLAIM_SUSPECT",
    "CREATE",
    "CREATE_KEYS",
    "EPOCHS",
    "FAIL",
    "FINISH",
    "LEASE_KEYS",
    "PARK_KEY",
    "PARK_ROWS",
    "PUT",
    "RECLAIM_KEYS",
    "RECLAIM_ROWS",
    "RELEASE",
    "RENEW",
    "RENEW_KEY",
    "RETURN",
    "STATE",
]

# Seconds since 1970, to the millisecond.
_NOW = "((julianday('now') - 2440587.5) * 86400.0)"

CREATE = (
    f"""CREATE TABLE IF NOT EXISTS {{table}} (
    {{id}} INTEGER PRIMARY KEY AUTOINCREMENT,
    {{payload}} TEXT NOT NULL,
    {{status}} INTEGER NOT NULL DEFAULT 0,
    {{run_at}} REAL NOT NULL DEFAULT {_NOW},
    {{enqueued}} REAL NOT NULL DEFAULT {_NOW},
    {{started}} REAL,
    {{finished}} REAL,
    {{attempts}} INTEGER NOT NULL DEFAULT 0,
    {{owner}} TEXT,
    {{token}} INTEGER,
    {{expires}} REAL,
    {{error}} TEXT
)""",
    "CREATE INDEX IF NOT EXISTS {index} ON {table} ({status}, {id})",
)

# Epochs grow for ever, whatever is deleted.
CREATE_KEYS = """CREATE TABLE IF NOT EXISTS {keys} (
    epoch INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    owner TEXT,
    expires REAL NOT NULL
)"""

_CLAIMED = """UPDATE {table} SET
    {status} = CASE WHEN {status} = 9 AND {attempts} >= :attempts THEN -1 ELSE 9 END,
    {error} = CASE WHEN {status} = 9 AND {attempts} >= :attempts THEN :exhausted ELSE {error} END,
    {finished} = CASE WHEN {status} = 9 AND {attempts} >= :attempts THEN :now END,
    {attempts} = {attempts} + ({status} = 0 OR {attempts} < :attempts),
    {started} = :now, {owner} = :owner, {token} = :token, {expires} = :expires
"""
_RETURNING = """
RETURNING {id}, {status}, {attempts}, CAST({payload} AS BLOB), :now - {enqueued}, """

# The oldest of both, each read in the order of the index (status, id). A row that was never to
# wait is due, although the clock may have been set back since. A claim begins behind those that the
# last one took, and from time to time at the beginning: rows that are not due may be many.
CLAIM = (
    _CLAIMED
    + """WHERE {id} IN (
    SELECT * FROM (
        SELECT * FROM (
            SELECT {id} FROM {table} WHERE {status} = 0 AND {id} > :behind
                AND ({run_at} IS NULL OR {run_at} <= :now OR {run_at} <= {enqueued})
            ORDER BY {id} LIMIT :count)
        UNION ALL SELECT * FROM (
            SELECT {id} FROM {table} WHERE :reclaim AND {status} = 9 AND {expires} <= :now
                AND {attempts} <> :suspect
            ORDER BY {id} LIMIT :count)
    ) ORDER BY 1 LIMIT :count)"""
    + _RETURNING
    + "NULL"
)

# What crashed its readers may do so again: its last attempt is made alone.
CLAIM_SUSPECT = (
    _CLAIMED
    + """WHERE {id} IN (
    SELECT {id} FROM {table} WHERE {status} = 9 AND {expires} <= :now AND {attempts} = :suspect
    ORDER BY {id} LIMIT 1)"""
    + _RETURNING
    + "NULL"
)

# By keys: what a lease of a key left behind when it ran out is unprocessed again.
RECLAIM_ROWS = """UPDATE {table} SET
    {status} = CASE WHEN {attempts} >= :attempts THEN -1 ELSE 0 END,
    {error} = CASE WHEN {attempts} >= :attempts THEN :exhausted ELSE {error} END,
    {finished} = CASE WHEN {attempts} >= :attempts THEN :now END,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE {status} = 9 AND {key} IN (SELECT key FROM {keys} WHERE expires <= :now)
RETURNING {id}, {status}"""
RECLAIM_KEYS = "DELETE FROM {keys} WHERE expires <= :now"

LEASE_KEYS = """INSERT INTO {keys} (key, owner, expires)
SELECT key, :owner, :expires FROM (
    SELECT DISTINCT key FROM (
        SELECT {key} AS key FROM {table}
        WHERE {status} = 0 AND ({run_at} IS NULL OR {run_at} <= :now OR {run_at} <= {enqueued})
            AND NOT EXISTS (
            SELECT 1 FROM {keys} k WHERE k.key = {key} AND k.owner IS NOT :owner)
        ORDER BY {id} LIMIT :count))
WHERE true ON CONFLICT (key) DO UPDATE SET expires = excluded.expires"""

CLAIM_OF_KEYS = (
    _CLAIMED
    + """WHERE {id} IN (
    SELECT {id} FROM {table}
    WHERE {status} = 0 AND ({run_at} IS NULL OR {run_at} <= :now OR {run_at} <= {enqueued})
    AND {key} IN (SELECT key FROM {keys} WHERE owner = :owner)
    ORDER BY {id} LIMIT :count)"""
    + _RETURNING
    + "{key}"
)
EPOCHS = "SELECT key, epoch FROM {keys} WHERE owner = :owner"

# The token stays: whoever asks again after a lost answer sees that it was written.
FINISH = """UPDATE {table} SET {status} = 1, {finished} = ?, {error} = NULL, {expires} = NULL
WHERE {id} = ? AND {token} = ? AND {status} = 9"""

RETURN = """UPDATE {table} SET
    {status} = 0, {attempts} = {attempts} - 1, {started} = NULL, {owner} = NULL, {expires} = NULL
WHERE {id} = ? AND {token} = ? AND {status} = 9"""

FAIL = """UPDATE {table} SET
    {status} = CASE WHEN :final OR {attempts} >= :attempts THEN -1 ELSE 0 END,
    {finished} = CASE WHEN :final OR {attempts} >= :attempts THEN :now END,
    {run_at} = :run_at, {error} = :error, {owner} = NULL, {expires} = NULL
WHERE {id} = :id AND {token} = :token AND {status} = 9
RETURNING {status}"""

# A row that is to be tried again holds its key back, and the later rows of it with it.
PARK_KEY = "UPDATE {keys} SET owner = NULL, expires = :run_at WHERE key = :key AND epoch = :epoch"
PARK_ROWS = """UPDATE {table} SET
    {status} = 0, {attempts} = {attempts} - 1, {started} = NULL,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE {status} = 9 AND {key} = :key"""

RELEASE = "DELETE FROM {keys} WHERE key = ? AND epoch = ? AND owner IS NOT NULL"

RENEW = "UPDATE {table} SET {expires} = ? WHERE {id} = ? AND {token} = ? AND {status} = 9"
RENEW_KEY = "UPDATE {keys} SET expires = ? WHERE key = ? AND epoch = ? AND owner = ?"

STATE = "SELECT {id}, {token}, {status} FROM {table} WHERE {id} = :id"

PUT = "INSERT INTO {table} ({payload}, {run_at}, {enqueued}) VALUES (?, ?, ?) RETURNING {id}"
