"""By what right some bytes stand: the record, or the row of the control plane, that accounts for them.

A live record accounts for its text, in its row, in the indexes on it, in its edges, its vector and its body. A hidden
one does until its restore window ends. A row of the control plane accounts only for what the data map says that it
holds: the clear ids of an erasure that has not ended, who acted, the scope and reason of a standing hold, the name of
an org.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from expunge.authority.port import Row, Statement, Tx
from expunge.datamap import CODES, COLLECTIONS, LINEAGE, RECORDS, SEARCHED, Role
from expunge.datamap.collections import SEARCH, VECTORS
from expunge.model.ids import shown
from expunge.model.instant import Instant, to_text
from expunge.residue.trees import Key, Spot

_RECORDS = {kind.name: kind for kind in RECORDS}
_ROLES = {kind.name: {column.name: column.role for column in kind.columns} for kind in COLLECTIONS}
_BY_CODE = {kind.search_code: kind for kind in SEARCHED}
_BY_RID = {
    name: Statement("residue.by_rid", f"SELECT org, id, rid, marked FROM {name} WHERE rid = :rid") for name in _RECORDS
}
_BY_ID = {
    name: Statement("residue.by_id", f"SELECT org, id, rid, marked FROM {name} WHERE org = :org AND id = :id")
    for name in _RECORDS
}
_BY_REF = {
    kind.name: Statement(
        "residue.by_ref",
        f"SELECT org, id, rid, marked FROM {kind.name} WHERE {kind.body_in} = :ref ORDER BY marked, rid",
    )
    for kind in RECORDS
    if kind.body_in
}
_HIDDEN_BY = Statement(
    "residue.hidden_by",
    """SELECT r.id, r.status, r.restore_until FROM marks m JOIN requests r ON r.rid = m.request
    WHERE m.id = :id AND m.org = :org AND m.collection = :collection AND m.rid = :rid
    ORDER BY r.purge = 0 AND r.restore_until > :now DESC, r.purge LIMIT 1""",
)
_EDGE = Statement(
    "residue.edge",
    """SELECT org, derived, source, derived_collection, source_collection FROM lineage
    WHERE derived = :derived AND org = :org AND source = :source""",
)
_REQUEST = Statement("residue.request", "SELECT id, status FROM requests WHERE rid = :rid")
_HOLD = Statement("residue.hold", "SELECT released_at FROM holds WHERE id = :id")


class Standing(StrEnum):
    """What accounts for a hit."""

    RECORD = "record"
    """A live record."""
    HIDDEN = "hidden"
    """A record that an erasure has hidden, within its restore window."""
    DECLARED = "declared"
    """A row of the control plane that holds it by the data map."""
    SCHEMA = "schema"
    """The definition of the tables, the same in every database."""
    DIGITS = "digits"
    """Hexadecimal digits in the middle of a hash."""
    FOREIGN = "foreign"
    """What the server keeps of another database, or of a table that is not ours."""
    NOTHING = "nothing"
    """No record: residue."""


@dataclass(frozen=True, slots=True)
class Account:
    """What accounts for a hit, in words, and the record or the erasure if it is one."""

    standing: Standing
    words: str
    collection: str | None = None
    record: str | None = None
    """The id of the record, shortened."""
    erasure: str | None = None
    until: str | None = None
    org: str | None = None
    """The org of the record, shortened."""

    @property
    def accounts(self) -> bool:
        """Whether it stands by right."""
        return self.standing is not Standing.NOTHING


def nothing(words: str, collection: str | None = None) -> Account:
    """Why nothing accounts for a hit."""
    return Account(Standing.NOTHING, words, collection)


DIGITS = Account(Standing.DIGITS, "digits of a hash")
"""What stands within a run of hexadecimal digits, by chance."""
FOREIGN = Account(Standing.FOREIGN, "of another database, or of a table that is not ours")
"""What the log of a server has of others."""
_CATALOG = Account(Standing.SCHEMA, "the names of tables and columns")


class Accounts:
    """Answers by what right bytes stand in a spot, on the snapshot of a transaction."""

    def __init__(self, tx: Tx, now: Instant) -> None:
        self._tx, self._now = tx, now
        self._of = lru_cache(4096)(self._of_spot)

    def of(self, spot: Spot, *, in_hash: bool) -> Account:
        """What accounts for bytes in a spot; ``in_hash``: they are hexadecimal digits amid others."""
        return self.of_row(spot.tree.table, spot.key, spot.column, in_hash=in_hash)

    def of_row(self, table: str, key: Key | None, column: str | None, *, in_hash: bool) -> Account:
        """What accounts for bytes in a column of a row, by the key of the row."""
        account = self._of(table, key, column)
        return DIGITS if in_hash and not account.accounts else account

    def of_ref(self, collections: frozenset[str], ref: str) -> Account:
        """What accounts for a body: the first record that names it, a live one before a hidden one."""
        found = [
            (name, row)
            for name in sorted(collections & _BY_REF.keys())
            for row in self._tx.rows(_BY_REF[name], ref=ref)
        ]
        accounts = [self._of_record(name, row) for name, row in found]
        standing = [account for account in accounts if account.accounts]
        return next(iter((*standing, *accounts)), nothing("no record names this body"))

    def of_entry(self, number: int) -> Account:
        """What accounts for an entry of the search index, or a vector, by the number of its record."""
        kind = _BY_CODE.get(number % CODES)
        rows = [] if kind is None else self._tx.rows(_BY_RID[kind.name], rid=number // CODES)
        if kind is None or not rows:
            return nothing("its record has gone", kind.name if kind else None)
        return self._of_record(kind.name, rows[0])

    def _of_spot(self, table: str, key: Key | None, column: str | None) -> Account:
        if table.startswith("sqlite_"):
            return _CATALOG
        if key is None or None in key:
            return nothing("its row cannot be read", table)
        if table in _RECORDS or table in (VECTORS.name, LINEAGE.name):
            return self._of_records(table, key, column)
        if table.startswith(SEARCH.name + "_"):
            return nothing("it stands in the search index, which holds hashes alone", SEARCH.name)
        return self._of_control(table, key, column)

    def _of_records(self, table: str, key: Key, column: str | None) -> Account:
        if table == VECTORS.name:
            return self.of_entry(int(key[0]))
        if table == LINEAGE.name:
            return self._of_edge(key, column)
        rows = self._tx.rows(_BY_RID[table], rid=key[0])
        return self._of_record(table, rows[0]) if rows else nothing("its row has gone", table)

    def _of_record(self, name: str, row: Row) -> Account:
        org, record_id, rid, marked = row
        if not marked:
            return Account(Standing.RECORD, "a live record", name, shown(record_id), org=shown(org))
        values = {"org": org, "id": record_id, "rid": rid, "collection": name, "now": self._now}
        for erasure, status, until in self._tx.rows(_HIDDEN_BY, **values):
            if until is not None and until > self._now:
                end = to_text(until)
                return Account(Standing.HIDDEN, "a hidden record", name, shown(record_id), erasure, end, shown(org))
            words = f"a record that an erasure removes, and has not yet ({status})"
            return Account(Standing.NOTHING, words, name, shown(record_id), erasure, org=shown(org))
        words = "a marked record that no erasure names"
        return Account(Standing.NOTHING, words, name, shown(record_id), org=shown(org))

    def _of_edge(self, key: Key, column: str | None) -> Account:
        derived, org, source = key
        for _, _, _, derived_in, source_in in self._tx.rows(_EDGE, derived=derived, org=org, source=source):
            name, record_id = (source_in, source) if column == "source" else (derived_in, derived)
            rows = self._tx.rows(_BY_ID[name], org=org, id=record_id) if name in _BY_ID else []
            return (
                self._of_record(name, rows[0]) if rows else nothing("an edge of a record that has gone", LINEAGE.name)
            )
        return nothing("its row has gone", LINEAGE.name)

    def _of_control(self, table: str, key: Key, column: str | None) -> Account:
        role = _ROLES.get(table, {}).get(column or "")
        where = f"{table}.{column}" if column else table
        if role is Role.CLEAR_UNTIL_END:
            return self._of_clear(where, table, key)
        if table == "holds" and role in (Role.NAMESPACE, Role.AGENT, Role.USER, Role.SESSION, Role.CONTENT):
            rows = self._tx.rows(_HOLD, id=key[0])
            if rows and rows[0][0] is None:
                return Account(Standing.DECLARED, f"{where}, of a hold that stands", table)
            return nothing(f"{where}, of a hold that was released", table)
        if role in _HELD:
            return Account(Standing.DECLARED, f"{where}, {_HELD[role]}", table)
        return nothing(f"{where}, where no person's words belong", table)

    def _of_clear(self, where: str, table: str, key: Key) -> Account:
        for erasure, status in self._tx.rows(_REQUEST, rid=key[0]):
            words = f"{where}, needed until the erasure ends ({status})"
            return Account(Standing.DECLARED, words, table, erasure=erasure)
        return nothing(f"{where}, of an erasure that has gone", table)


_HELD: dict[Role | None, str] = {
    Role.ORG: "the name of an org",
    Role.ACTOR: "who did something",
    Role.ID: "an id of ours",
}
"""What the rows of the control plane hold by their declaration, whoever was erased."""
