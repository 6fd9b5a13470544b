"""SQL statements for claims and settlements in PostgreSQL: constant texts, quoted names, values as
parameters."""

from __future__ import annotations

from penstock.streams.sql_queue.postgres.table_statements import MAKE_ALONE

__all__ = [
    "ADOPT",
    "ADOPT_ALL",
    "BLOCKED",
    "BURY",
    "CANCELLED",
    "CHANGED",
    "CHECK_AT_ONCE",
    "CLAIM",
    "CLAIM_BEHIND",
    "CLAIM_OF_KEYS",
    "CLAIM_SUSPECT",
    "CLAIM_SUSPECT_OF_KEY",
    "CLAIM_URGENT_OF_KEYS",
    "CREATE_KEYS",
    "FAIL",
    "FINISH",
    "FIRST",
    "HAS_SUSPECTS",
    "HAS_SUSPECT_KEYS",
    "HOLES",
    "IS_MIXED",
    "KEEP_KEYS",
    "LEASE_KEYS",
    "LEASE_SUSPECT_KEY",
    "LEASE_URGENT_KEYS",
    "LEAVE_KEYS",
    "MARK_SUSPECTS",
    "NOW",
    "PARK_KEYS",
    "PARK_LATER_ROWS",
    "PARK_ROWS",
    "PASSED_KEYS",
    "RECLAIM_KEYS",
    "RECLAIM_ROWS",
    "RELEASE",
    "RENEW",
    "RENEW_KEYS",
    "RETURN",
    "STATES",
    "ids_of",
    "some_of",
]

# Rows of the user's table that are unprocessed and not in the queue yet; others that adopt rows at
# the moment are not waited for. One that was processed, and whose status the user has set back,
# begins anew, unless others have done all this since: then it is another version by now.
ADOPT = """WITH new AS MATERIALIZED (
    SELECT o.{own_id} AS id, ({came})::timestamptz AS came FROM {own} AS o
    WHERE o.{own_status} = 0 AND NOT EXISTS (
        SELECT FROM {table} AS b WHERE b.{id} = o.{own_id} AND b.{status} IN (0, 9))
    ORDER BY o.{own_id} LIMIT (:adopt)::bigint FOR UPDATE OF o SKIP LOCKED
)
INSERT INTO {table} AS b ({id}, {enqueued}) SELECT id, coalesce(came, now()) FROM new
ON CONFLICT ({id}) DO UPDATE SET
    {status} = 0, {attempts} = 0, {run_at} = NULL, {enqueued} = excluded.{enqueued},
    {started} = NULL, {finished} = NULL, {owner} = NULL, {token} = NULL, {expires} = NULL,
    {error} = NULL
WHERE b.{status} IN (1, -1)
    AND b.ctid = (SELECT seen.ctid FROM {table} AS seen WHERE seen.{id} = b.{id})"""
# With keys no row may be left out: it could be the first of its key. So a reader waits for others
# that insert the same rows.
ADOPT_ALL = ADOPT.replace("LIMIT (:adopt)::bigint FOR UPDATE OF o SKIP LOCKED", "")

CREATE_KEYS = (
    MAKE_ALONE,
    # The identity gives every lease its own epoch, larger than all earlier ones.
    """CREATE TABLE IF NOT EXISTS {keys} (
    key text PRIMARY KEY,
    epoch bigint GENERATED ALWAYS AS IDENTITY,
    owner text,
    expires timestamptz NOT NULL
)""",
)


# A row that was claimed beside others, by a positive token, need not have been begun: if its lease
# runs out when one attempt is left, it is a suspect. From then on it is claimed alone, by negative
# tokens, and has failed for good when as many leases in a row have run out as it has attempts.
_SUSPECT = "(:suspect)::int >= 0 AND t.{attempts} >= (:suspect)::int"
_EXHAUSTED = (
    "t.{status} = 9 AND t.{attempts} >= 2 * (:attempts)::bigint - 1"
    " AND (t.{token} < 0 OR (:suspect)::int < 0)"
)
_COUNTED = (
    f"CASE WHEN t.{{status}} = 9 AND t.{{token}} >= 0 AND {_SUSPECT} THEN (:suspect)::int "
    "ELSE t.{attempts} END"
)

_ERROR = f"CASE WHEN {_EXHAUSTED} THEN (:exhausted)::text || t.{{id}}::text ELSE t.{{error}} END"

_CLAIMED = f"""UPDATE {{table}} AS t SET
    {{status}} = CASE WHEN {_EXHAUSTED} THEN -1 ELSE 9 END,
    {{error}} = {_ERROR},
    {{finished}} = CASE WHEN {_EXHAUSTED} THEN now() END,
    {{attempts}} = {_COUNTED} + CASE WHEN {_EXHAUSTED} THEN 0 ELSE 1 END,
    {{started}} = now(), {{owner}} = :owner, {{token}} = :token,
    {{expires}} = now() + :lease * interval '1 s'
"""
_RETURNING = """
RETURNING t.{id}, t.{status}, t.{attempts}, {payload_of},
    date_part('epoch', now() - t.{enqueued}), date_part('epoch', t.{enqueued}), """

# Rows that were claimed leave dead entries in the index until the next vacuum: a claim begins
# behind those that the last one took, and from time to time at the beginning. Rows of lower
# priorities that have come since are few.
_WAITS = "{waits}"
# Without priorities `urgent` is 0, as the status of what waits is.
_BEHIND = "{waits} AND ({first}, t.{id}) > (:urgent, :behind)"
_URGENT = "{is_ranked} AND {waits} AND {rank} < :urgent"


_DUE = """AS MATERIALIZED (
    SELECT t.{id}, {rank} AS rank FROM {table} AS t WHERE {waits}
        AND {attempts} IS NOT NULL
        AND ({run_at} IS NULL OR {run_at} <= now() OR {run_at} <= {enqueued}){spared}
    ORDER BY {by_index} LIMIT :count FOR UPDATE SKIP LOCKED
)"""

# The first of both, each read in the order of an index. A row that was never to wait is due,
# although the clock may have been set back since.
CLAIM = (
    "WITH due "
    + _DUE
    + """, expired AS MATERIALIZED (
    SELECT t.{id}, {rank} AS rank FROM {table} AS t
    WHERE :reclaim AND {status} >= 9 AND {status} <= 9 AND {expires} <= now()
        AND (NOT ("""
    + _SUSPECT
    + """) OR """
    + _EXHAUSTED
    + """){spared}
    ORDER BY {status}, {id} LIMIT :count FOR UPDATE SKIP LOCKED
), oldest AS (
    SELECT {id} FROM (TABLE due UNION ALL TABLE expired) AS found ORDER BY rank, {id} LIMIT :count
)
"""
    + _CLAIMED
    + "FROM oldest WHERE t.{id} = oldest.{id}"
    + _RETURNING
    + "NULL, {rank}{context}"
)

CLAIM_BEHIND = (
    CLAIM.replace(
        "WITH due " + _DUE,
        f"WITH urgent {_DUE.replace(_WAITS, _URGENT)}, due {_DUE.replace(_WAITS, _BEHIND)}",
    )
).replace("(TABLE due", "(TABLE urgent UNION ALL TABLE due")

# What crashed its readers may do so again: it is claimed alone.
_SUSPECTS = (
    f"t.{{status}} >= 9 AND t.{{status}} <= 9 AND t.{{expires}} <= now() AND {_SUSPECT}"
    f" AND ({_EXHAUSTED}) IS NOT TRUE{{spared}}"
)
HAS_SUSPECTS = "SELECT 1 FROM {table} AS t WHERE " + _SUSPECTS + " LIMIT 1"
CLAIM_SUSPECT = (
    """WITH oldest AS MATERIALIZED (
    SELECT {id} FROM {table} AS t WHERE """
    + _SUSPECTS
    + """
    ORDER BY {status}, {id} LIMIT 1 FOR UPDATE SKIP LOCKED
)
"""
    + _CLAIMED
    + "FROM oldest WHERE t.{id} = oldest.{id}"
    + _RETURNING
    + "NULL, {rank}{context}"
)

# By keys: what a lease of a key left behind when it ran out is unprocessed again. Suspects stay in
# process without a token, and their keys have an entry without an owner's name, which keeps others
# from them until each suspect has been worked on alone.
RECLAIM_KEYS = """DELETE FROM {keys} WHERE key IN (
    SELECT key FROM {keys} WHERE expires <= now() AND owner IS DISTINCT FROM ''
    ORDER BY key FOR UPDATE SKIP LOCKED)"""
RECLAIM_ROWS = f"""WITH oldest AS MATERIALIZED (
    SELECT t.{{id}} FROM {{table}} AS t
    WHERE t.{{status}} >= 9 AND t.{{status}} <= 9 AND t.{{expires}} <= now()
        AND NOT EXISTS (SELECT FROM {{keys}} AS k WHERE k.key = {{key_of}}){{spared}}
    ORDER BY t.{{status}}, t.{{id}} FOR UPDATE OF t SKIP LOCKED
)
UPDATE {{table}} AS t SET
    {{status}} = CASE WHEN {_EXHAUSTED} THEN -1 WHEN {_SUSPECT} THEN 9 ELSE 0 END,
    {{error}} = {_ERROR},
    {{finished}} = CASE WHEN {_EXHAUSTED} THEN now() END,
    {{attempts}} = {_COUNTED}, {{token}} = NULL,
    {{owner}} = CASE WHEN {_SUSPECT} THEN t.{{owner}} END,
    {{expires}} = CASE WHEN {_SUSPECT} THEN t.{{expires}} END
FROM oldest WHERE t.{{id}} = oldest.{{id}}
RETURNING t.{{id}}, t.{{status}}, {{key_of}}"""
# Only these keys, none of them another reader's: two readers marking each other's keys would
# deadlock.
MARK_SUSPECTS = """INSERT INTO {keys} (key, owner, expires)
SELECT key, '', now() FROM (
    SELECT DISTINCT {key_of} AS key FROM {table} AS t
    WHERE t.{status} >= 9 AND t.{status} <= 9 AND t.{expires} <= now() AND t.{token} IS NULL
        AND {key_of} = ANY((:keys)::text[]){spared}
) AS keys
ORDER BY key ON CONFLICT (key) DO NOTHING"""
HAS_SUSPECT_KEYS = "SELECT 1 FROM {keys} WHERE owner IN ('', :alone) LIMIT 1"
# While the key has other suspects, its later rows wait for those too, however long this one takes.
LEASE_SUSPECT_KEY = """WITH first AS MATERIALIZED (
    SELECT key FROM {keys} WHERE owner IN ('', :alone)
    ORDER BY key LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE {keys} AS k SET
    expires = now() + :lease * interval '1 s', owner = CASE WHEN 1 < (
    SELECT count(*) FROM {table} AS t WHERE t.{status} >= 9 AND t.{status} <= 9
        AND t.{expires} <= now() AND t.{token} IS NULL AND {key_of} = k.key)
    THEN :alone ELSE :owner END
FROM first WHERE k.key = first.key
RETURNING k.key, k.epoch"""
CLAIM_SUSPECT_OF_KEY = (
    """WITH oldest AS MATERIALIZED (
    SELECT t.{id}, k.key, k.epoch FROM {table} AS t JOIN {keys} AS k ON k.key = {key_of}
    WHERE t.{status} >= 9 AND t.{status} <= 9 AND t.{expires} <= now() AND t.{token} IS NULL
        AND k.key = :key AND k.owner IN (:owner, :alone){spared}
    ORDER BY t.{status}, t.{id} LIMIT 1 FOR UPDATE OF t
)
"""
    + _CLAIMED
    + "FROM oldest WHERE t.{id} = oldest.{id}"
    + _RETURNING
    + "oldest.key, {rank}{context}, oldest.epoch"
)

# The keys of this reader whose rows are left in the table for now have another owner's name: no
# reader claims rows of them.
LEAVE_KEYS = """UPDATE {keys} SET
    owner = CASE WHEN key = ANY((:left_keys)::text[]) THEN :left ELSE :owner END
WHERE owner = :left OR (owner = :owner AND key = ANY((:left_keys)::text[]))"""

# Rows that are waiting, where claims by key look: in order in each range, and so in all.
_WAITING = """t.{status} >= 0 AND t.{status} <= 0{in_range}
            AND t.{attempts} IS NOT NULL
            AND (t.{run_at} IS NULL OR t.{run_at} <= now() OR t.{run_at} <= t.{enqueued})
            {spared}"""
_RANGES = "unnest((:after)::bigint[], (:before)::bigint[]) AS r (after, before)"


# The keys of passed rows that others have now, and whether there are any such keys at all.
BLOCKED = """SELECT ARRAY(SELECT key FROM {keys}
    WHERE key = ANY((:passed)::text[]) AND owner IS DISTINCT FROM :owner),
    EXISTS (SELECT FROM {keys} WHERE owner IS DISTINCT FROM :owner)"""

# In the order of the keys, or two readers could deadlock.
LEASE_KEYS = f"""INSERT INTO {{keys}} AS k (key, owner, expires)
SELECT key, :owner, now() + :lease * interval '1 s' FROM (
    SELECT DISTINCT key FROM (
        SELECT f.key FROM {_RANGES} CROSS JOIN LATERAL (
            SELECT t.{{id}} AS id, {{key_of}} AS key FROM {{table}} AS t
            WHERE {_WAITING} AND NOT EXISTS (
                SELECT FROM {{keys}} AS k
                WHERE k.key = {{key_of}} AND k.owner IS DISTINCT FROM :owner)
            AND {{key_of}} <> ALL((:blocked)::text[])
            ORDER BY t.{{status}}, t.{{id}} LIMIT :count) AS f
        ORDER BY f.id LIMIT :count) AS head) AS keys
ORDER BY key
ON CONFLICT (key) DO UPDATE SET expires = excluded.expires WHERE k.owner = excluded.owner
RETURNING k.key, k.epoch, k.xmax = 0"""

# A separate statement, which sees everything committed before the keys were leased.
CLAIM_OF_KEYS = (
    f"""WITH oldest AS MATERIALIZED (
    SELECT f.* FROM {_RANGES} CROSS JOIN LATERAL (
        SELECT t.{{id}}, k.key, k.epoch FROM {{table}} AS t JOIN {{keys}} AS k ON k.key = {{key_of}}
        WHERE {_WAITING} AND k.owner = :owner
        ORDER BY t.{{status}}, t.{{id}} LIMIT :count FOR UPDATE OF t) AS f
    ORDER BY f.{{id}} LIMIT :count
)
"""
    + _CLAIMED
    + "FROM oldest WHERE t.{id} = oldest.{id}"
    + _RETURNING
    + "oldest.key, {rank}{context}, oldest.epoch"
)

# Where waiting rows have several priorities: the keys of the first rows in the order of claims.
# Each gets as many places as it has among these rows, and its oldest rows take them.
IS_MIXED = """SELECT (SELECT {rank} FROM {table} AS t WHERE {waits} ORDER BY {by_index} LIMIT 1)
    < (SELECT {rank} FROM {table} AS t WHERE {waits} ORDER BY {rank} DESC LIMIT 1)"""
_DUE_NOW = """{waits} AND t.{attempts} IS NOT NULL
            AND (t.{run_at} IS NULL OR t.{run_at} <= now() OR t.{run_at} <= t.{enqueued}){spared}"""
LEASE_URGENT_KEYS = f"""INSERT INTO {{keys}} AS k (key, owner, expires)
SELECT key, :owner, now() + :lease * interval '1 s' FROM (
    SELECT DISTINCT key FROM (
        SELECT {{key_of}} AS key FROM {{table}} AS t
        WHERE {_DUE_NOW} AND NOT EXISTS (
            SELECT FROM {{keys}} AS k
            WHERE k.key = {{key_of}} AND k.owner IS DISTINCT FROM :owner)
        ORDER BY {{by_index}} LIMIT :count) AS head) AS keys
ORDER BY key
ON CONFLICT (key) DO UPDATE SET expires = excluded.expires WHERE k.owner = excluded.owner
RETURNING k.key, k.epoch, k.xmax = 0"""
CLAIM_URGENT_OF_KEYS = (
    f"""WITH due AS MATERIALIZED (
    SELECT t.{{id}} AS id, {{rank}} AS rank, k.key, k.epoch
    FROM {{table}} AS t JOIN {{keys}} AS k ON k.key = {{key_of}}
    WHERE {_DUE_NOW} AND k.owner = :owner
), places AS (
    SELECT key, count(*) AS n FROM (
        SELECT key FROM due ORDER BY rank, id LIMIT :count) AS first GROUP BY key
), chosen AS (
    SELECT id, key, epoch FROM (
        SELECT due.*, n, row_number() OVER (PARTITION BY key ORDER BY id) AS place
        FROM due JOIN places USING (key)) AS numbered
    WHERE place <= n
), oldest AS MATERIALIZED (
    SELECT t.{{id}}, chosen.key, chosen.epoch
    FROM chosen JOIN {{table}} AS t ON t.{{id}} = chosen.id
    WHERE t.{{status}} = 0 FOR UPDATE OF t
)
"""
    + _CLAIMED
    + "FROM oldest WHERE t.{id} = oldest.{id}"
    + _RETURNING
    + "oldest.key, {rank}{context}, oldest.epoch"
)

# What a claim has passed by: from the first row that is waiting or in work, the ranges of ids that
# no row has, up to the last id that exists, and then the keys of all rows that are waiting or in
# work, which also finds those that have come since in one of these ranges.
FIRST = """SELECT min(id) FROM (
    (SELECT {id} AS id FROM {table} WHERE {status} >= 0 AND {status} <= 0
        ORDER BY {status}, {id} LIMIT 1) UNION ALL
    (SELECT {id} FROM {table} WHERE {status} >= 9 AND {status} <= 9
        ORDER BY {status}, {id} LIMIT 1)) AS found"""
HOLES = """SELECT before, id, is_last FROM (
    SELECT id, lag(id, 1, (:end)::bigint) OVER in_order AS before,
        lead(id) OVER in_order IS NULL AS is_last FROM (
        SELECT ({id})::bigint AS id FROM {table}
        WHERE {id} > (:end)::bigint AND {id} <= (:last)::bigint
        ORDER BY {id} LIMIT :some) AS found
    WINDOW in_order AS (ORDER BY id)) AS rows
WHERE id > before + 1 OR is_last"""
PASSED_KEYS = f"""SELECT f.key, min(f.id), max(f.id)
FROM {_RANGES} CROSS JOIN (VALUES (0), (9)) AS s (status) CROSS JOIN LATERAL (
    SELECT t.{{id}} AS id, {{key_of}} AS key FROM {{table}} AS t
    WHERE (t.{{status}}, t.{{id}}) > (s.status, r.after)
        AND (t.{{status}}, t.{{id}}) < (s.status, r.before)) AS f
GROUP BY f.key"""
# Those whose keys are not known, although they are waiting: they were set back by hand. Others have
# not been changed since.
NOW = "SELECT pg_snapshot_xmin(pg_current_snapshot())::xid::text"
CHANGED = """SELECT t.{id} FROM {table} AS t
WHERE t.{status} >= 0 AND t.{status} <= 0 AND t.{id} <= (:end)::bigint
    AND age(t.xmin) <= (SELECT age((:since)::xid)) AND {key_of} <> ALL((:passed)::text[])"""

# A claim, or RECLAIM_ROWS, in parts, where the database refuses to change one of its rows.


def ids_of(claim: str) -> str:
    """Select the rows of a claim, and lock them."""
    return claim[: claim.index("UPDATE {table}")] + "SELECT {id} FROM oldest"


def some_of(claim: str) -> str:
    """A claim of only some of its rows."""
    return claim.replace(_OLDEST, _SOME)


_OLDEST = "FROM oldest WHERE t.{id} = oldest.{id}"
_SOME = _OLDEST + " AND t.{id} = ANY((:some)::{id_type}[])"
BURY = """UPDATE {table} AS t SET
    {status} = -1, {finished} = now(), {owner} = NULL, {token} = NULL, {expires} = NULL,
    {error} = concat(t.{error} || chr(10), (:refusal)::text)
WHERE t.{id} = ANY((:some)::{id_type}[])"""
CHECK_AT_ONCE = "SET CONSTRAINTS ALL IMMEDIATE"

# The token stays: a repeated call after a lost answer sees that it was written. The status is
# hidden from the planner: if its statistics know of no row in process, it would read all such rows
# and compare each with each of those given, instead of looking these up by id.
_HELD = "t.{id} = h.id AND t.{token} = h.token AND CASE t.{status} WHEN 9 THEN true END"
_ROWS = "unnest((:ids)::{id_type}[], (:tokens)::bigint[])"

# No two leases, of any keys, have the same epoch.
_LEASED = "k.key = ANY((:keys)::text[]) AND k.epoch = ANY((:epochs)::bigint[])"

# An expired lease is not reclaimed until the transaction ends: others skip the rows that this one
# has locked, and would continue with the later rows of the key.
KEEP_KEYS = f"SELECT k.key FROM {{keys}} AS k WHERE {_LEASED} ORDER BY k.key FOR KEY SHARE"

FINISH = (
    "UPDATE {table} AS t SET {status} = 1, {finished} = now(), {error} = NULL, {expires} = NULL "
    f"FROM {_ROWS} AS h (id, token) WHERE {_HELD}"
)

# A suspect stays one, or it would be claimed beside others, and overtaken by suspects of its key.
RETURN = f"""UPDATE {{table}} AS t SET
    {{status}} = CASE WHEN t.{{token}} < 0 THEN 9 ELSE 0 END,
    {{token}} = CASE WHEN t.{{token}} >= 0 THEN t.{{token}} END,
    {{expires}} = CASE WHEN t.{{token}} < 0 THEN now() END,
    {{attempts}} = t.{{attempts}} - 1, {{started}} = NULL, {{owner}} = NULL
FROM {_ROWS} AS h (id, token) WHERE {_HELD}"""

_IS_DEAD = "h.final OR t.{attempts} >= :attempts AND NOT h.snoozed"
FAIL = f"""UPDATE {{table}} AS t SET
    {{status}} = CASE WHEN {_IS_DEAD} THEN -1 ELSE 0 END,
    {{finished}} = CASE WHEN {_IS_DEAD} THEN now() END,
    {{attempts}} = t.{{attempts}} - CASE WHEN h.snoozed THEN 1 ELSE 0 END,
    {{run_at}} = now() + h.delay * interval '1 s',
    {{error}} = CASE WHEN h.snoozed THEN t.{{error}} ELSE h.error END,
    {{owner}} = NULL, {{expires}} = NULL
FROM unnest((:ids)::{{id_type}}[], (:tokens)::bigint[], (:errors)::text[], (:delays)::float8[],
    (:finals)::bool[], (:snoozes)::bool[]) AS h (id, token, error, delay, final, snoozed)
WHERE {_HELD}
RETURNING t.{{id}}, t.{{status}}"""

# A row that is to be tried again holds its key back, and the later rows of it with it.
PARK_KEYS = f"""UPDATE {{keys}} AS k SET owner = NULL, expires = now()
    + ((:delays)::float8[])[array_position((:epochs)::bigint[], k.epoch)] * interval '1 s'
WHERE {_LEASED}"""
PARK_ROWS = """UPDATE {table} AS t SET
    {status} = 0, {attempts} = t.{attempts} - 1, {started} = NULL,
    {owner} = NULL, {token} = NULL, {expires} = NULL
WHERE t.{status} = 9 AND {key_of} = ANY((:keys)::text[])"""
PARK_LATER_ROWS = (
    PARK_ROWS
    + """ AND EXISTS (
    SELECT FROM unnest((:keys)::text[], (:ids)::{id_type}[]) AS a (key, id)
    WHERE a.key = {key_of} AND a.id < t.{id})"""
)

RELEASE = f"DELETE FROM {{keys}} AS k WHERE {_LEASED} AND k.owner IS NOT NULL"

RENEW = (
    "UPDATE {table} AS t SET {expires} = now() + :lease * interval '1 s' "
    f"FROM {_ROWS} AS h (id, token) WHERE {_HELD}"
)
RENEW_KEYS = (
    "UPDATE {keys} AS k SET expires = now() + :lease * interval '1 s' "
    f"WHERE {_LEASED} AND k.owner = ANY((:owners)::text[]) RETURNING k.epoch"
)

STATES = """SELECT {id}, {token}, {status} FROM {table} WHERE {id} = ANY((:ids)::{id_type}[])"""

CANCELLED = """SELECT {id} FROM {table} WHERE {id} = ANY((:ids)::{id_type}[])
AND {status} = -1 AND {token} IS NULL AND {error} = :why"""
