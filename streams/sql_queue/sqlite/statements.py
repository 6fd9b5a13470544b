"""SQL statements of the queue for SQLite: constant texts, quoted names, values as parameters."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "ADOPT",
    "BURY",
    "CANCELLED",
    "CLAIM",
    "CLAIM_OF_KEYS",
    "CLAIM_SUSPECT",
    "CLAIM_SUSPECT_OF_KEY",
    "CLAIM_URGENT_OF_KEYS",
    "CREATE",
    "CREATE_BESIDE",
    "CREATE_KEYS",
    "CREATE_PERIODIC",
    "DELAY_OWN",
    "EPOCHS",
    "FAIL",
    "FINISH",
    "FORGET_PASSED",
    "GO_ON_WITH_KEYS",
    "HAS_SUSPECTS",
    "HAS_SUSPECT_KEYS",
    "HAS_TABLE",
    "IS_MIXED",
    "LAST",
    "LEASE_KEYS",
    "LEASE_SUSPECT_KEY",
    "LEASE_URGENT_KEYS",
    "LEAVE_KEY",
    "MARK_SUSPECTS",
    "MOVE",
    "PARK_KEY",
    "PARK_LATER_ROWS",
    "PARK_ROWS",
    "PASSED",
    "PASS_BY",
    "PAUSE",
    "PLAN",
    "PLANNED",
    "PUT",
    "PUT_OWN",
    "RECLAIM_KEYS",
    "RECLAIM_ROWS",
    "RELEASE",
    "RENEW",
    "RENEW_KEY",
    "RESUME",
    "RETURN",
    "STATE",
    "TABLES",
    "UPGRADE",
    "ids_of",
    "order",
    "some_of",
]

# Seconds since 1970, to the millisecond.
_NOW = "((julianday('now') - 2440587.5) * 86400.0)"

# The columns about the work on a row, in a queue's table and in one beside the user's.
_WORK = """{started} REAL,
    {finished} REAL,
    {attempts} INTEGER NOT NULL DEFAULT 0,
    {owner} TEXT,
    {token} INTEGER,
    {expires} REAL,
    {error} TEXT"""

# Of the waiting rows only: what becomes of a row takes it out, and adds nothing.
_PRIORITY = "{priority} INTEGER NOT NULL DEFAULT 0"
_PRIORITY_INDEX = """CREATE INDEX IF NOT EXISTS {priority_index} ON {table} ({priority}, {id})
WHERE {status} = 0"""

TABLES = """SELECT name FROM sqlite_master
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%' ORDER BY name"""

CREATE = (
    f"""CREATE TABLE IF NOT EXISTS {{table}} (
    {{id}} INTEGER PRIMARY KEY AUTOINCREMENT,
    {{payload}} TEXT NOT NULL,
    {{status}} INTEGER NOT NULL DEFAULT 0,
    {{run_at}} REAL NOT NULL DEFAULT {_NOW},
    {{enqueued}} REAL NOT NULL DEFAULT {_NOW},
    {_WORK},
    {_PRIORITY}
)""",
    "CREATE INDEX IF NOT EXISTS {index} ON {table} ({status}, {id})",
    _PRIORITY_INDEX,
)
UPGRADE = (f"ALTER TABLE {{table}} ADD COLUMN {_PRIORITY}", _PRIORITY_INDEX)

# What a queue needs besides the user's table. The trigger makes every change of a status one of the
# user's table, too, in the same transaction.
CREATE_BESIDE = (
    f"""CREATE TABLE IF NOT EXISTS {{table}} (
    {{id}} {{id_type}} PRIMARY KEY NOT NULL,
    {{status}} INTEGER NOT NULL DEFAULT 0,
    {{run_at}} REAL,
    {{enqueued}} REAL NOT NULL DEFAULT {_NOW},
    {_WORK}
)""",
    "CREATE INDEX IF NOT EXISTS {index} ON {table} ({status}, {id})",
    """CREATE TRIGGER IF NOT EXISTS {mirror} AFTER UPDATE OF {status} ON {table_name}
WHEN NEW.{status} IS NOT OLD.{status}{moved}
BEGIN
    UPDATE {own_name} SET {own_status} = NEW.{status}{mirrored} WHERE {own_id} = NEW.{id};
END""",
)

# Rows of the user's table that are unprocessed and not in the queue yet. One that was processed,
# and whose status the user has set back, begins anew.
ADOPT = """INSERT INTO {table} ({id}, {enqueued})
SELECT o.{own_id}, coalesce({came}, :now) FROM {own} AS o
WHERE o.{own_status} = 0 AND NOT EXISTS (
    SELECT 1 FROM {table} AS b WHERE b.{id} = o.{own_id} AND b.{status} IN (0, 9))
ORDER BY o.{own_id} LIMIT :adopt
ON CONFLICT ({id}) DO UPDATE SET
    {status} = 0, {attempts} = 0, {run_at} = NULL, {enqueued} = excluded.{enqueued},
    {started} = NULL, {finished} = NULL, {owner} = NULL, {token} = NULL, {expires} = NULL,
    {error} = NULL"""
PUT_OWN = "INSERT INTO {own} ({own_payload}, {own_status}) VALUES (?, 0) RETURNING {own_id}"
DELAY_OWN = "INSERT INTO {table} ({id}, {run_at}, {enqueued}) VALUES (?, ?, ?)"

# Epochs only grow, whatever is deleted.
CREATE_KEYS = """CREATE TABLE IF NOT EXISTS {keys} (
    epoch INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    owner TEXT,
    expires REAL NOT NULL
)"""

# A row that was claimed beside others, by a positive token, need not have been begun: if its lease
# runs out when one attempt is left, it is a suspect. From then on it is claimed alone, by negative
# tokens, and has failed for good when as many leases in a row have run out as it has attempts.
_SUSPECT = "(:suspect >= 0 AND {attempts} >= :suspect)"
_EXHAUSTED = "({status} = 9 AND {attempts} >= 2 * :attempts - 1 AND ({token} < 0 OR :suspect < 0))"
_COUNTED = (
    f"CASE WHEN {{status}} = 9 AND {{token}} >= 0 AND {_SUSPECT} "
    "THEN :suspect ELSE {attempts} END"
)

_CLAIMED = f"""UPDATE {{table}} SET
    {{status}} = CASE WHEN {_EXHAUSTED} THEN -1 ELSE 9 END,
    {{error}} = CASE WHEN {_EXHAUSTED} THEN :exhausted || {{id}} ELSE {{error}} END,
    {{finished}} = CASE WHEN {_EXHAUSTED} THEN :now END,
    {{attempts}} = {_COUNTED} + CASE WHEN {_EXHAUSTED} THEN 0 ELSE 1 END,
    {{started}} = :now, {{owner}} = :owner, {{token}} = :token, {{expires}} = :expires
"""
_RETURNING = """
RETURNING {id}, {status}, {attempts}, CAST({payload} AS BLOB), NULL, {came_at}, """

_DUE = """SELECT * FROM (
            SELECT {rank} AS rank, {id} AS id FROM {table} {indexed}
                WHERE {status} = 0 AND {where}
                AND {attempts} IS NOT NULL
                AND {is_due}{spared}
            ORDER BY {by_index} LIMIT :count)"""

# The first of both, each read in the order of an index. A row that was never to wait is due,
# although the clock may have been set back since. A claim begins behind those that the last one
# took, and from time to time at the beginning: rows that are not due may be many. Rows of lower
# priorities that have come since are few.
CLAIM = (
    _CLAIMED
    + """WHERE {id} IN (
    SELECT id FROM (
        """
    + """
        UNION ALL """.join(
        _DUE.replace("{where}", where) for where in ("{is_urgent}", "{is_behind}", "{is_later}")
    )
    + """
        UNION ALL SELECT * FROM (
            SELECT {rank} AS rank, {id} AS id FROM {table}
                WHERE :reclaim AND {status} = 9 AND {expires} <= :now
                AND (NOT """
    + _SUSPECT
    + " OR "
    + _EXHAUSTED
    + """){spared}
            ORDER BY {id} LIMIT :count)
    ) ORDER BY rank, id LIMIT :count)"""
    + _RETURNING
    + "NULL, {rank}{context}"
)

# What crashed its readers may do so again: it is claimed alone.
_SUSPECTS = (
    f"{{status}} = 9 AND {{expires}} <= :now AND {_SUSPECT} AND {_EXHAUSTED} IS NOT TRUE{{spared}}"
)
HAS_SUSPECTS = f"SELECT 1 FROM {{table}} WHERE {_SUSPECTS} LIMIT 1"
CLAIM_SUSPECT = (
    _CLAIMED
    + f"""WHERE {{id}} IN (
    SELECT {{id}} FROM {{table}} WHERE {_SUSPECTS} ORDER BY {{id}} LIMIT 1)"""
    + _RETURNING
    + "NULL, {rank}{context}"
)

# By keys: what a lease of a key left behind when it ran out is unprocessed again. Suspects stay in
# process without a token, and their keys have an entry without an owner's name, which keeps others
# from them until each suspect has been worked on alone.
RECLAIM_KEYS = "DELETE FROM {keys} WHERE expires <= :now AND owner IS NOT ''"
RECLAIM_ROWS = f"""UPDATE {{table}} SET
    {{status}} = CASE WHEN {_EXHAUSTED} THEN -1 WHEN {_SUSPECT} THEN 9 ELSE 0 END,
    {{error}} = CASE WHEN {_EXHAUSTED} THEN :exhausted || {{id}} ELSE {{error}} END,
    {{finished}} = CASE WHEN {_EXHAUSTED} THEN :now END,
    {{attempts}} = {_COUNTED}, {{token}} = NULL,
    {{owner}} = CASE WHEN {_SUSPECT} THEN {{owner}} END,
    {{expires}} = CASE WHEN {_SUSPECT} THEN {{expires}} END
WHERE {{status}} = 9 AND {{expires}} <= :now
    AND NOT EXISTS (SELECT 1 FROM {{keys}} k WHERE k.key = {{key}}){{spared}}
RETURNING {{id}}, {{status}}"""
MARK_SUSPECTS = """INSERT INTO {keys} (key, owner, expires)
SELECT DISTINCT {key}, '', :now FROM {table}
WHERE {status} = 9 AND {expires} <= :now AND {token} IS NULL{spared}
ON CONFLICT (key) DO NOTHING"""
HAS_SUSPECT_KEYS = "SELECT 1 FROM {keys} WHERE owner IN ('', :alone) LIMIT 1"
# While the key has other suspects, its later rows wait for those too, however long this one takes.
LEASE_SUSPECT_KEY = """UPDATE {keys} AS k SET expires = :expires, owner = CASE WHEN 1 < (
    SELECT count(*) FROM {table} WHERE {status} = 9 AND {expires} <= :now AND {token} IS NULL
        AND {key} = k.key) THEN :alone ELSE :owner END
WHERE key IN (SELECT key FROM {keys} WHERE owner IN ('', :alone) ORDER BY key LIMIT 1)
RETURNING CAST(key AS BLOB), epoch"""
CLAIM_SUSPECT_OF_KEY = (
    _CLAIMED
    + """WHERE {id} IN (
    SELECT {id} FROM {table}
    WHERE {status} = 9 AND {expires} <= :now AND {token} IS NULL AND {key} = CAST(:key AS TEXT)
        {spared}
    ORDER BY {id} LIMIT 1)"""
    + _RETURNING
    + "CAST({key} AS BLOB), {rank}{context}"
)

# What is left may be most of the table. So claims begin behind the rows that one for all has passed
# by, except that none takes rows of a key that had some of those: it would let them overtake.
PASSED = "CREATE TEMP TABLE IF NOT EXISTS penstock_passed (key TEXT PRIMARY KEY)"
FORGET_PASSED = "DELETE FROM temp.penstock_passed"
PASS_BY = """INSERT OR IGNORE INTO temp.penstock_passed
SELECT key FROM {keys} WHERE owner IS NOT :owner"""
LAST = "SELECT max({id}) FROM {table} WHERE {status} = 0"

# The keys of this reader whose rows are left in the table for now have another owner's name: no
# reader claims rows of them.
GO_ON_WITH_KEYS = "UPDATE {keys} SET owner = :owner WHERE owner = :left"
LEAVE_KEY = "UPDATE {keys} SET owner = :left WHERE key = CAST(:key AS TEXT) AND owner = :owner"

LEASE_KEYS = """INSERT INTO {keys} (key, owner, expires)
SELECT key, :owner, :expires FROM (
    SELECT DISTINCT key FROM (
        SELECT {key} AS key FROM {table}
        WHERE {status} = 0 AND {attempts} IS NOT NULL
            AND {is_due}
            AND NOT EXISTS (
            SELECT 1 FROM {keys} k WHERE k.key = {key} AND k.owner IS NOT :owner)
            AND {id} > :behind AND {key} NOT IN (SELECT key FROM temp.penstock_passed){spared}
        ORDER BY {id} LIMIT :count))
WHERE true ON CONFLICT (key) DO UPDATE SET expires = excluded.expires"""

CLAIM_OF_KEYS = (
    _CLAIMED
    + """WHERE {id} IN (
    SELECT {id} FROM {table}
    WHERE {status} = 0 AND {attempts} IS NOT NULL
        AND {is_due} AND {id} > :behind AND {key} IN (
            SELECT key FROM {keys} WHERE owner = :owner
            EXCEPT SELECT key FROM temp.penstock_passed){spared}
    ORDER BY {id} LIMIT :count)"""
    + _RETURNING
    + "CAST({key} AS BLOB), {rank}{context}"
)
# Where waiting rows have several priorities: the keys of the first rows in the order of claims.
# Each gets as many places as it has among these rows, and its oldest rows take them.
IS_MIXED = """SELECT (SELECT {rank} FROM {table} WHERE {status} = 0 ORDER BY {rank} LIMIT 1)
    IS NOT (SELECT {rank} FROM {table} WHERE {status} = 0 ORDER BY {rank} DESC LIMIT 1)"""
LEASE_URGENT_KEYS = LEASE_KEYS.replace("ORDER BY {id}", "ORDER BY {by_index}")
CLAIM_URGENT_OF_KEYS = (
    _CLAIMED
    + """WHERE {id} IN (
    WITH due AS MATERIALIZED (
        SELECT {rank} AS rank, {id} AS id, {key} AS key FROM {table}
        WHERE {status} = 0 AND {attempts} IS NOT NULL AND {is_due} AND {key} IN (
            SELECT key FROM {keys} WHERE owner = :owner){spared}
    ), places AS (
        SELECT key, count(*) AS n FROM (SELECT key FROM due ORDER BY rank, id LIMIT :count)
        GROUP BY key
    )
    SELECT id FROM (
        SELECT id, n, row_number() OVER (PARTITION BY due.key ORDER BY id) AS place
        FROM due JOIN places ON places.key = due.key)
    WHERE place <= n)"""
    + _RETURNING
    + "CAST({key} AS BLOB), {rank}{context}"
)
# Keys are passed as bytes: a text in SQLite may be any bytes.
EPOCHS = "SELECT CAST(key AS BLOB), epoch FROM {keys} WHERE owner = :owner"

# A claim, or RECLAIM_ROWS, in parts, where the database refuses to change one of its rows.


def ids_of(claim: str) -> str:
    """Select the rows of a claim."""
    return "SELECT {id} FROM {table} " + _where(claim)


def some_of(claim: str) -> str:
    """A claim of only some of its rows."""
    where = _where(claim)
    return claim.replace(where, where + " AND {id} IN ({some})")


def _where(claim: str) -> str:
    return claim[claim.index("WHERE ") : claim.rindex("\nRETURNING ")]


BURY = """UPDATE {table} SET
    {status} = -1, {finished} = :now, {owner} = NULL, {token} = NULL, {expires} = NULL,
    {error} = coalesce({error} || char(10), '') || :refusal
WHERE {id} IN ({some})"""

# The token stays: a repeated call after a lost answer sees that it was written.
FINISH = """UPDATE {table} SET {status} = 1, {finished} = ?, {error} = NULL, {expires} = NULL
WHERE {id} = ? AND {token} = ? AND {status} = 9"""

# A suspect stays one, or it would be claimed beside others, and overtaken by suspects of its key.
RETURN = """UPDATE {table} SET
    {status} = CASE WHEN {token} < 0 THEN 9 ELSE 0 END,
    {token} = CASE WHEN {token} >= 0 THEN {token} END,
    {expires} = CASE WHEN {token} < 0 THEN ? END,
    {attempts} = {attempts} - 1, {started} = NULL, {owner} = NULL
WHERE {id} = ? AND {token} = ? AND {status} = 9"""

FAIL = """UPDATE {table} SET
    {status} = CASE WHEN :final OR {attempts} >= :attempts AND NOT :snoozed THEN -1 ELSE 0 END,
    {finished} = CASE WHEN :final OR {attempts} >= :attempts AND NOT :snoozed THEN :now END,
    {attempts} = {attempts} - :snoozed, {run_at} = :run_at,
    {error} = CASE WHEN :snoozed THEN {error} ELSE :error END, {owner} = NULL, {expires} = NULL
WHERE {id} = :id AND {token} = :token AND {status} = 9
RETURNING {status}"""

# A row that is to be tried again holds its key back, and the later rows of it with it.
PARK_KEY = """UPDATE {keys} SET owner = NULL, expires = :run_at
WHERE key = CAST(:key AS TEXT) AND epoch = :epoch"""
PARK_ROWS = """UPDATE {table} SET
    {status} = 0, {attempts} = {attempts} - 1, {started} = NULL,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE {status} = 9 AND {key} = CAST(:key AS TEXT)"""
PARK_LATER_ROWS = PARK_ROWS + " AND {id} > :id"

RELEASE = "DELETE FROM {keys} WHERE key = CAST(? AS TEXT) AND epoch = ? AND owner IS NOT NULL"

RENEW = "UPDATE {table} SET {expires} = ? WHERE {id} = ? AND {token} = ? AND {status} = 9"
RENEW_KEY = """UPDATE {keys} SET expires = ?
WHERE key = CAST(? AS TEXT) AND epoch = ? AND owner IN (?, ?, ?)"""

STATE = "SELECT {id}, {token}, {status} FROM {table} WHERE {id} = :id"

CANCELLED = """SELECT {id} FROM {table}
WHERE {id} IN ({some}) AND {status} = -1 AND {token} IS NULL AND {error} = :why"""

CREATE_PERIODIC = """CREATE TABLE IF NOT EXISTS {periodic} (
    name TEXT PRIMARY KEY, schedule TEXT NOT NULL, next REAL NOT NULL, last REAL,
    missed INTEGER NOT NULL DEFAULT 0)"""
PLAN = """INSERT INTO {periodic} AS p (name, schedule, next) VALUES (:name, :schedule, :first)
ON CONFLICT (name) DO UPDATE SET schedule = excluded.schedule, next = excluded.next
WHERE p.schedule <> excluded.schedule"""
PLANNED = "SELECT name, schedule, next, last, missed FROM {periodic} ORDER BY name"
MOVE = """UPDATE {periodic} SET next = :after, last = coalesce(:last, last),
    missed = missed + :missed
WHERE name = :name AND next = :time RETURNING name"""

# Its name is a literal.
HAS_TABLE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name"
PAUSE = """CREATE TABLE IF NOT EXISTS {paused} AS
SELECT strftime('%Y-%m-%dT%H:%M:%fZ') AS since"""
RESUME = "DROP TABLE IF EXISTS {paused}"

PUT = """INSERT INTO {table} ({payload}, {run_at}, {enqueued}{ranked})
VALUES (?, ?, ?{with_rank}) RETURNING {id}"""


def order(names: Mapping[str, str], ranked: bool, index: str | None = None) -> dict[str, str]:
    """The names in statements for the order of claims: by priority and id, or only by id.

    Without statistics SQLite would read all waiting rows and sort them, unless told the `index`.
    """
    if not ranked:
        return {
            "rank": "0",
            "waits": f"{names['status']} = 0",
            "indexed": "",
            "by_index": names["id"],
            "is_urgent": "FALSE",
            "is_behind": f"{names['id']} > :behind",
            "is_later": "FALSE",
            "ranked": "",
            "with_rank": "",
        }
    rank, id = names["priority"], names["id"]
    return {
        "rank": rank,
        "waits": f"{names['status']} = 0 AND {rank} IS NOT NULL",
        "indexed": "" if index is None else f"INDEXED BY {index}",
        "by_index": f"{rank}, {id}",
        "is_urgent": f"{rank} < :urgent",
        # Of a comparison of both at once SQLite would use only the first with the index.
        "is_behind": f"{rank} = :urgent AND {id} > :behind",
        "is_later": f"{rank} > :urgent",
        "ranked": f", {rank}",
        "with_rank": ", ?",
    }
