"""The one exporter: walks the data map, section by section and page by page, and never holds more than a page.

What is in scope is what the selector says (law 1), whole unless a limit is named and told of (law 11). When an erasure
that touches the scope begins or ends meanwhile the export fails, and its file lacks the manifest that makes it whole.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import orjson

from expunge.authority.orgs import seq_of
from expunge.authority.origin import store_id
from expunge.authority.port import Row, Statement, Tx, Unit
from expunge.datamap import RECORDS, Collection
from expunge.datamap.selector import Selector, as_parameter
from expunge.errors import ErasedSince, ErasureInProgress, InputError, StoreFault
from expunge.model.identity import PARTS
from expunge.model.ids import shown
from expunge.model.instant import to_text
from expunge.model.scope import Scope
from expunge.subject.export import statements
from expunge.subject.export.containers import BODY_NAME, container
from expunge.subject.export.manifest import BODIES, DERIVED, VECTORS, Format, LeftOut, Manifest
from expunge.system import KeysRotated, System

T = TypeVar("T")

PAGE_ROWS = 1000
_FIRST_ROWS = 32
_PAGE_BYTES = 4 << 20
_WINDOWS = 20
"""So many pages of records are looked through for edges in one hop."""
_BASE64_STEP = 3 << 15
MoreLines = Callable[[Tx, int], Sequence[tuple[int, bytes]]]
"""Reads the next lines of a section behind a place, each with its place."""
View = Literal["person", "admin"]
CONVERSATIONS = ("episodes", "events")
"""The sections that ``conversation_bytes`` bounds together."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be exported, and in which form; a limit of 0 is none."""

    scope: Scope
    view: View
    form: Format = "json"
    hidden: bool = False
    tombstoned: bool = True
    section_limit: int = 0
    conversation_bytes: int = 0
    vectors: bool = False
    extra: tuple[tuple[str, MoreLines], ...] = ()
    """More sections, by name."""


@dataclass(frozen=True, slots=True)
class _Start:
    store: str
    as_of: int
    last: dict[str, int]
    hidden: int


@dataclass(frozen=True, slots=True)
class _Page:
    """Some rows, and the place behind them, if there can be more."""

    rows: list[Row]
    behind: Place | None


@dataclass(frozen=True, slots=True)
class _Body:
    """A body that is to be given: what record it is of, where it lies, and what it has to be."""

    kind: Collection
    id: str
    ref: str
    sha256: str
    file: str


Place = tuple[int, int]
_BEFORE_ALL: Place = (-1, 0)


class Export:
    """One export on its way out. ``manifest`` is whole when ``pieces`` has ended."""

    def __init__(self, system: System, asked: Asked) -> None:
        if len(asked.scope.targets) != 1 or asked.scope.before is not None:
            raise InputError(
                "an export is of one user, namespace, agent or session, of any age", hint="ask once for each"
            )
        self._system, self._asked = system, asked
        self._exported_at = system.clock.now()
        self._selector = Selector.of(asked.scope)
        self._values = {"org": asked.scope.org, "targets": as_parameter(enumerate(asked.scope.targets))}
        self._out = container(asked.form, self._exported_at)
        self._cut: dict[str, Place] = {}
        """The place of the last record that was given of a section that a limit cut."""
        self._start: _Start
        self.manifest: Manifest
        self.media_type = self._out.media_type

    async def pieces(self) -> AsyncIterator[bytes]:
        """The file, from its first byte to its last.

        Raises:
            ErasureInProgress, ErasedSince: an erasure that touches the scope runs, or ran meanwhile.
            StoreFault: a body could not be read, or is not what was stored.

        """
        self._start, self._ahead = await self._ask(self._begin)
        self.manifest = self._new_manifest()
        yield self._out.begin()
        self._conversation_left = self._asked.conversation_bytes
        for kind in self._selector.reached:
            async for piece in self._records(kind):
                yield piece
        files: list[_Body] = []
        async for piece in self._bodies(files):
            yield piece
        async for piece in self._rest():
            yield piece
        await self._ask(self._check)
        yield self._out.manifest(orjson.dumps(self.manifest.as_json()))
        for body in files:
            yield self._out.file(body.file)
            async for data in self._read(body):
                yield self._out.piece(data)
        if files:
            await self._ask(self._check)
        yield self._out.end()

    async def _ask(self, unit: Unit[T]) -> T:
        try:
            return await self._system.authority.read(unit)
        except KeysRotated:  # a fence under the new key would not be matched
            self._system.read_keys_again()
            return await self._system.authority.read(unit)

    def _begin(self, tx: Tx) -> tuple[_Start, dict[Statement, _Page]]:
        """Where it begins, and the first page of everything: most people's data are not more than that, in one hop."""
        as_of = seq_of(tx, self._asked.scope.org)
        self._refuse_erased(tx, as_of)
        hidden = 0
        if tx.rows(statements.HIDES, org=self._asked.scope.org):
            hidden = sum(
                tx.rows(statements.count_hidden(kind, self._selector), **self._values)[0][0]
                for kind in self._selector.reached
            )
        start = _Start(store_id(tx), as_of, dict(tx.rows(statements.LAST_RIDS)), hidden)
        ahead: dict[Statement, _Page] = {}
        for kind in self._selector.reached:
            last = start.last[kind.name]
            for made_by in (statements.page, *((statements.bodies,) if kind.body_in else ())):
                statement = self._statement(made_by, kind)
                ahead[statement] = self._behind(tx, kind, statement, _BEFORE_ALL, _FIRST_ROWS, until=last)
            if ahead[self._statement(statements.page, kind)].rows:
                edges = statements.derived(kind, self._selector)
                ahead[edges] = self._edges(tx, kind, _BEFORE_ALL, last)
        return start, ahead

    def _check(self, tx: Tx) -> None:
        """Whether what was read is still what is held (law 4)."""
        if seq_of(tx, self._asked.scope.org) != self._start.as_of:
            self._refuse_erased(tx, self._start.as_of)

    def _refuse_erased(self, tx: Tx, as_of: int) -> None:
        self._system.check_keys(tx)
        target = self._asked.scope.targets[0]
        own = {part: {key.pseudonym(target.org, part, value) for key in self._system.keys.pseudonym_keys}
               for part, value in target.named().items()}  # fmt: skip
        found = tx.rows(statements.RAISED_SINCE, org=target.org, as_of=as_of)
        for request_id, user, namespace, session, agent, lowered in found:
            fence = {"user_id": user, "namespace": namespace, "session_id": session, "agent": agent}
            if all(not fence[part] or part not in own or fence[part] in own[part] for part in PARTS):
                fault = ErasureInProgress if lowered is None else ErasedSince
                raise fault(f"erasure {request_id} touches what was being exported", request_id=request_id)

    def _new_manifest(self) -> Manifest:
        target, start = self._asked.scope.targets[0], self._start
        manifest = Manifest(
            view=self._asked.view,
            scope={"org": target.org, **target.named()},
            origin={"exported_at": to_text(self._exported_at), "store": start.store, "as_of": start.as_of},
        )
        if start.hidden and not self._asked.hidden:
            manifest.miss(
                LeftOut("hidden records", "an erasure hides them until it is restored or purged", start.hidden)
            )
        if not self._asked.tombstoned:
            manifest.miss(LeftOut("tombstoned versions", "they were not asked for"))
        if not self._asked.vectors:
            manifest.left_out.append(LeftOut("vectors", "they are made from the records, and were not asked for"))
        for kind in RECORDS:
            if kind not in self._selector.reached:
                manifest.miss(LeftOut(kind.name, kind.session_keep))
        return manifest

    async def _records(self, kind: Collection) -> AsyncIterator[bytes]:
        section = self.manifest.section(kind.name)
        yield self._out.section(kind.name)
        statement, before = self._statement(statements.page, kind), _BEFORE_ALL
        async for rows in self._pages(statement, kind, lambda row: len(row[2])):
            taken = self._within_limits(kind, [row[2] for row in rows])
            section.add(taken)
            yield self._out.lines(taken)
            if section.truncated:
                self._cut[kind.name] = self._place(rows[len(taken) - 1]) if taken else before
                break
            before = self._place(rows[-1]) if rows else before

    def _statement(self, made_by: Callable[..., Statement], kind: Collection) -> Statement:
        return made_by(kind, self._selector, hidden=self._asked.hidden, tombstoned=self._asked.tombstoned)

    def _within_limits(self, kind: Collection, lines: list[bytes]) -> list[bytes]:
        """As many lines as the limits leave room for; the manifest tells when that is not all of them (law 11)."""
        section, room = self.manifest.section(kind.name), len(lines)
        if self._asked.section_limit:
            room = min(room, self._asked.section_limit - section.count)
        if self._asked.conversation_bytes and kind.name in CONVERSATIONS:
            for at, line in enumerate(lines[:room]):
                if len(line) > self._conversation_left:
                    room = at
                    break
                self._conversation_left -= len(line)
        section.truncated = room < len(lines)
        return lines[:room]

    def _place(self, row: Row) -> Place:
        """Where a row stands in the order of its pages."""
        return (row[0], row[1]) if statements.by_seq(self._selector) else (0, row[1])

    async def _pages(
        self, statement: Statement, kind: Collection, size_of: Callable[[Row], int]
    ) -> AsyncIterator[list[Row]]:
        """The rows of a statement, a page at a time. Pages of long rows are short ones."""
        size, until = _FIRST_ROWS, self._start.last[kind.name]

        def unit(tx: Tx, at: Place, size: int) -> _Page:
            self._check(tx)
            return self._behind(tx, kind, statement, at, size, until=until)

        first = self._ahead.get(statement)
        page = first if first is not None else await self._ask(partial(unit, at=_BEFORE_ALL, size=size))
        while True:
            yield page.rows
            if page.behind is None:
                return
            size = min(2 * size, PAGE_ROWS) if sum(map(size_of, page.rows)) < _PAGE_BYTES else max(size // 2, 1)
            page = await self._ask(partial(unit, at=page.behind, size=size))

    async def _given(
        self, name: str, statement: Statement, kind: Collection, size_of: Callable[[Row], int]
    ) -> AsyncIterator[list[Row]]:
        """The same for what goes with the records of a section, up to where a limit cut these."""
        cut = self._cut.get(kind.name)
        async for rows in self._pages(statement, kind, size_of):
            given = rows if cut is None else [row for row in rows if self._place(row) <= cut]
            yield given
            if len(given) < len(rows):
                self.manifest.section(name).truncated = True
                return

    def _behind(self, tx: Tx, kind: Collection, statement: Statement, place: Place, size: int, *, until: int) -> _Page:
        """The rows behind a place, as many as a page takes or more."""
        rows: list[Row] = []
        seq, rid = place
        while True:
            found = tx.rows(statement, seq=seq, rid=rid, until=until, size=size, **self._values)
            rows += found
            if found:
                rid = found[-1][1]
            if len(found) >= size:
                return _Page(rows, (seq, rid))
            later = self._next_seq(tx, kind, seq)
            if later is None:
                return _Page(rows, None)
            seq, rid = later, 0
            if len(rows) >= size:
                return _Page(rows, (seq, rid))

    def _next_seq(self, tx: Tx, kind: Collection, seq: int) -> int | None:
        if not statements.by_seq(self._selector):
            return None
        found: int | None = tx.rows(statements.next_seq(kind, self._selector), seq=seq, **self._values)[0][0]
        return found

    async def _bodies(self, files: list[_Body]) -> AsyncIterator[bytes]:
        """The section of bodies: each in its line, or as a file that ``files`` names and that follows."""
        section = self.manifest.section(BODIES)
        yield self._out.section(BODIES)
        missing = 0
        for kind in self._selector.reached:
            if kind.body_in is None:
                continue
            statement = self._statement(statements.bodies, kind)
            async for rows in self._given(BODIES, statement, kind, lambda row: len(row[2])):
                there = await self._system.bodies[kind.name].present([row[5] for row in rows])
                for _, _, record_id, size, sha256, ref in rows:
                    if ref not in there:
                        missing += 1
                        continue
                    body = _Body(kind, record_id, ref, sha256, BODY_NAME.format(section.count + 1))
                    async for piece in self._body(body, size, files):
                        yield piece
        if missing:
            self.manifest.miss(LeftOut("bodies", "their store does not have them", missing))

    async def _body(self, body: _Body, size: int, files: list[_Body]) -> AsyncIterator[bytes]:
        section = self.manifest.section(BODIES)
        said = {"collection": BODIES, "of": body.id, "in": body.kind.name, "bytes": size, "sha256": body.sha256}
        if not self._out.inline:
            files.append(body)
            line = orjson.dumps(said | {"file": body.file})
            section.add([line])
            yield self._out.lines([line])
            return
        yield self._out.line()
        first = orjson.dumps(said)[:-1] + b',"base64":"'
        section.add_part(first)
        yield self._out.part(first)
        async for part in _as_base64(self._read(body)):
            section.add_part(part)
            yield self._out.part(part)
        section.add_part(b'"}', last=True)
        yield self._out.part(b'"}') + self._out.line_end()

    async def _read(self, body: _Body) -> AsyncIterator[bytes]:
        """The bytes of a body, checked at their end against what was stored."""
        hashed = hashlib.sha256()
        async for piece in self._system.bodies[body.kind.name].read(body.ref):
            hashed.update(piece)
            yield piece
        if hashed.hexdigest() != body.sha256:
            raise StoreFault(
                f"the body of {shown(body.id)} is not what was stored", hint="bring it back from a copy of its store"
            )

    async def _rest(self) -> AsyncIterator[bytes]:
        """What only tells: where else records were made from these, their vectors, and what the caller adds."""
        for name, pages in self._telling():
            section = self.manifest.section(name)
            yield self._out.section(name)
            async for lines in pages:
                if self._asked.section_limit and section.count + len(lines) > self._asked.section_limit:
                    lines, section.truncated = lines[: self._asked.section_limit - section.count], True  # noqa: PLW2901
                section.add(lines)
                yield self._out.lines(lines)
                if section.truncated:
                    break
        if elsewhere := self.manifest.section(DERIVED).count:
            why = "records outside of this scope that were made from it: only named, since they may hold others' words"
            self.manifest.left_out.append(LeftOut(DERIVED, why, elsewhere))

    def _telling(self) -> Iterator[tuple[str, AsyncIterator[list[bytes]]]]:
        yield DERIVED, self._derived()
        if self._asked.vectors:
            yield VECTORS, self._vectors()
        for name, read in self._asked.extra:
            yield name, self._extra(read)

    async def _derived(self) -> AsyncIterator[list[bytes]]:
        """What was made from these outside of the scope. Most have no such edge, and the store passes over them."""
        for kind in self._selector.reached:
            until, page = self._start.last[kind.name], self._ahead.get(statements.derived(kind, self._selector))
            while page is not None:  # where the first page found no record there is none
                yield [_derived_line(kind, row) for row in page.rows]
                if page.behind is None:
                    break
                page = await self._ask(partial(self._edges, kind=kind, place=page.behind, until=until))

    def _edges(self, tx: Tx, kind: Collection, place: Place, until: int) -> _Page:
        seq, rid = place
        rows: list[Row] = []
        for _ in range(_WINDOWS):
            values = {"seq": seq, "rid": rid} | self._values
            ((end,),) = tx.rows(statements.window_end(kind, self._selector), until=until, size=PAGE_ROWS, **values)
            if end is not None:
                rows += tx.rows(statements.derived(kind, self._selector), until=end, **values)
                rid = end
                continue
            later = self._next_seq(tx, kind, seq)
            if later is None:
                return _Page(rows, None)
            seq, rid = later, 0
        return _Page(rows, (seq, rid))

    async def _vectors(self) -> AsyncIterator[list[bytes]]:
        for kind in self._selector.reached:
            if kind.searched:
                statement = self._statement(statements.vectors, kind)
                async for rows in self._given(VECTORS, statement, kind, lambda row: len(row[4])):
                    yield [_vector_line(kind, row) for row in rows]

    async def _extra(self, read: MoreLines) -> AsyncIterator[list[bytes]]:
        place = 0
        while found := await self._ask(partial(_behind, read=read, place=place)):
            place = found[-1][0]
            yield [line for _, line in found]


def _behind(tx: Tx, *, read: MoreLines, place: int) -> Sequence[tuple[int, bytes]]:
    return read(tx, place)


def _derived_line(kind: Collection, row: Row) -> bytes:
    source, into, derived = row
    return orjson.dumps({"collection": DERIVED, "in": into, "id": derived, "made_from": source, "of": kind.name})


def _vector_line(kind: Collection, row: Row) -> bytes:
    _, _, record_id, model, vector = row
    said = {"collection": VECTORS, "of": record_id, "in": kind.name, "model": model}
    return orjson.dumps(said | {"float16": base64.b64encode(vector).decode()})


async def _as_base64(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Base64 of bytes that come in pieces of any size: it is cut where three bytes are four letters."""
    held = b""
    async for piece in pieces:
        held += piece
        whole = len(held) - len(held) % 3
        if whole >= _BASE64_STEP:
            yield base64.b64encode(held[:whole])
            held = held[whole:]
    yield base64.b64encode(held)
