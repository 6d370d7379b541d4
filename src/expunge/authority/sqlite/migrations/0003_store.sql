-- Schema 3: the store has a name of its own, by which an export tells where it came from. A copy of the file keeps it.

CREATE TABLE store (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO store (id) VALUES ('st-' || lower(hex(randomblob(16))));
