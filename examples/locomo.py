"""Turn the LoCoMo conversations (one JSON record a line) into lines that `expunge load` reads.

    python examples/locomo.py locomo.jsonl | expunge load -

| LoCoMo       | Expunge                                                                          |
|--------------|----------------------------------------------------------------------------------|
| conversation | namespace, `26`                                                                  |
| speaker      | user, `26-Caroline`: the same first name in two conversations is two people      |
| session      | session `26/s1`; it belongs to nobody, because both speak in it                  |
| turn         | episode `26/D1:1` of its speaker                                                 |
| observation  | fact `26/f1` about a person, derived from the turns that are its evidence        |
| summary      | memory `26/m1` under the key `summary/s1`, nobody's, derived from its turns      |

Record ids that outlive an erasure must name nobody, so those of facts and memories are counters.
Facts and memories carry no session: what was learned outlives the talk, and lineage ties it to the turns.
What the data should not hold (evidence that does not exist, say) is counted on stderr, zeros too.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Row = dict[str, Any]

STDIN, STDOUT = 0, 1
BAD_INPUT = 2

REQUIRED = {
    "turn": ("conversation", "session", "id", "speaker", "at", "text"),
    "observation": ("conversation", "session", "about", "text"),
    "summary": ("conversation", "session", "text"),
}
SIZES = ("turns", "observations", "summaries", "sessions", "speakers", "conversations")
SURPRISES = {
    "repeated turns": "a turn id came again in its conversation; the first stays",
    "repeated observations": "same person, text and evidence; the first stays",
    "repeated sources": "an id named twice by one record; kept once",
    "unknown sources": "a turn that does not exist; left out of the sources",
    "observations about no speaker": "kept for that person, who then can be erased",
    "observations without evidence": "kept without sources, dated at the end of their session",
    "observations without a time": "neither evidence nor turns in their session; left out",
    "summaries without turns": "nobody's and made from nothing, so no erasure would find them; left out",
}


def user_of(conversation: str, name: str) -> str:
    """Give the user id of a speaker: first names repeat across conversations."""
    return f"{conversation}-{name}"


@dataclass
class Conversation:
    """Everything that one conversation holds, in the order of the file."""

    name: str
    counts: Counter[str]
    turns: dict[str, Row] = field(default_factory=dict)
    sessions: dict[int, list[Row]] = field(default_factory=dict)
    observations: dict[tuple[str, ...], Row] = field(default_factory=dict)
    summaries: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Take in a row of any kind, leaving out what came before."""
        match row["kind"]:
            case "turn" if row["id"] in self.turns:
                self.counts["repeated turns"] += 1
            case "turn":
                self.turns[row["id"]] = row
                self.sessions.setdefault(row["session"], []).append(row)
            case "observation":
                identity = (row["about"], row["text"], *row.get("evidence", ()))
                self.counts["repeated observations"] += identity in self.observations
                self.observations.setdefault(identity, row)
            case _:
                self.summaries.append(row)

    def records(self) -> Iterator[Row]:
        """Yield every record of the conversation, sources first."""
        speakers = {turn["speaker"] for turn in self.turns.values()}
        self.counts["conversations"] += 1
        self.counts["speakers"] += len(speakers)
        yield from self._session_records()
        yield from map(self._episode, self.turns.values())
        yield from self._facts(speakers)
        yield from self._memories()

    def _session_id(self, session: int) -> str:
        return f"{self.name}/s{session}"

    def _turn_id(self, turn: Row) -> str:
        return f"{self.name}/{turn['id']}"

    def _session_records(self) -> Iterator[Row]:
        for session, turns in self.sessions.items():
            self.counts["sessions"] += 1
            yield {
                "collection": "sessions",
                "id": self._session_id(session),
                "namespace": self.name,
                "created_at": min(turns, key=_moment)["at"],
            }

    def _episode(self, turn: Row) -> Row:
        self.counts["turns"] += 1
        caption = turn.get("image_caption")
        return {
            "collection": "episodes",
            "id": self._turn_id(turn),
            "namespace": self.name,
            "user_id": user_of(self.name, turn["speaker"]),
            "session_id": self._session_id(turn["session"]),
            "created_at": turn["at"],
            "occurred_at": turn["at"],
            "input": f"{turn['text']} [image: {caption}]" if caption else turn["text"],
        }

    def _facts(self, speakers: set[str]) -> Iterator[Row]:
        for number, row in enumerate(self.observations.values(), start=1):
            evidence = self._sources(row.get("evidence", ()))
            dated_by = evidence or self.sessions.get(row["session"], [])
            self.counts["observations about no speaker"] += row["about"] not in speakers
            if not dated_by:
                self.counts["observations without a time"] += 1
                continue
            self.counts["observations without evidence"] += not evidence
            self.counts["observations"] += 1
            fact = {
                "collection": "facts",
                "id": f"{self.name}/f{number}",
                "namespace": self.name,
                "user_id": user_of(self.name, row["about"]),
                "created_at": max(dated_by, key=_moment)["at"],
                "subject": row["about"],
                "predicate": "observed",
                "object": row["text"],
            }
            yield fact | ({"sources": [self._turn_id(turn) for turn in evidence]} if evidence else {})

    def _memories(self) -> Iterator[Row]:
        for number, row in enumerate(self.summaries, start=1):
            turns = self._sources(row.get("built_from", ()))
            if not turns:
                self.counts["summaries without turns"] += 1
                continue
            self.counts["summaries"] += 1
            yield {
                "collection": "memories",
                "id": f"{self.name}/m{number}",
                "namespace": self.name,
                "created_at": max(turns, key=_moment)["at"],
                "key": f"summary/s{row['session']}",
                "memory_type": "summary",
                "value": row["text"],
                "sources": [self._turn_id(turn) for turn in turns],
            }

    def _sources(self, named: Sequence[str]) -> list[Row]:
        """Find the distinct turns that exist, in the order in which they are named."""
        distinct = dict.fromkeys(named)
        found = [self.turns[turn_id] for turn_id in distinct if turn_id in self.turns]
        self.counts["repeated sources"] += len(named) - len(distinct)
        self.counts["unknown sources"] += len(distinct) - len(found)
        return found


def records(lines: Iterable[str], counts: Counter[str] | None = None) -> Iterator[Row]:
    """Expunge records for LoCoMo `lines`; `counts` is told what was found (see `SIZES`, `SURPRISES`).

    Every line is read before the first record comes out, as evidence may stand after what rests on it.
    Raises `ValueError` for a line that is no LoCoMo record.
    """
    tally: Counter[str] = Counter() if counts is None else counts
    conversations: dict[str, Conversation] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = _parsed(line, number)
            name = row["conversation"]
            conversations.setdefault(name, Conversation(name, tally)).add(row)
    for conversation in conversations.values():
        yield from conversation.records()


def _parsed(line: str, number: int) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from error
    kind = row.get("kind") if isinstance(row, dict) else None
    if kind not in REQUIRED:
        raise ValueError(f"line {number}: the kind must be one of {', '.join(REQUIRED)}")
    missing = [name for name in REQUIRED[kind] if name not in row]
    if missing:
        raise ValueError(f"line {number}: the {kind} lacks {', '.join(missing)}")
    return dict(row)


def _moment(turn: Row) -> datetime:
    return datetime.fromisoformat(turn["at"])


def _report(counts: Counter[str]) -> str:
    sizes = ", ".join(f"{counts[name]:,} {name}" for name in SIZES)
    surprises = (f"  {counts[name]:,} {name} ({meaning})" for name, meaning in SURPRISES.items())
    return "\n".join([sizes, *surprises, ""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert a file, or stdin, and say on stderr what was found."""
    parser = argparse.ArgumentParser(description="Turn LoCoMo JSON lines into lines for `expunge load`.")
    parser.add_argument("source", metavar="FILE", help="the LoCoMo file, or - for stdin")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write (default: stdout)")
    chosen = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    source = STDIN if chosen.source == "-" else chosen.source
    try:
        with open(source, encoding="utf-8", closefd=source != STDIN) as lines:
            found = list(records(lines, counts))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"locomo: {error}\n")
        return BAD_INPUT
    target = chosen.output or STDOUT
    with open(target, "w", encoding="utf-8", newline="\n", closefd=target != STDOUT) as out:
        out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in found)
    sys.stderr.write(_report(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
