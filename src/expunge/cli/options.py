"""What every command shares: ``--db``, ``--org``, ``--json``, before or after the command's name."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from expunge.embedded import Expunge
from expunge.settings import Settings

Db = Annotated[
    str | None,
    typer.Option("--db", metavar="URL", help="Database: a path or sqlite:///PATH; else the setting, ./expunge.db."),
]
Org = Annotated[str | None, typer.Option("--org", metavar="NAME", help="Org (tenant); else the setting, default.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@dataclass(frozen=True)
class Target:
    """Which database and org a command speaks to, and how it answers."""

    db: str | None
    org: str | None
    json: bool

    @property
    def settings(self) -> Settings:
        """The settings in force, with the options laid over them."""
        return Settings.load(db=self.db, org=self.org)

    def open(self, *, create: bool = False) -> Expunge:
        """The system, to be entered; without ``create`` a missing database is an error."""
        return Expunge(settings=self.settings, create=create)


def shared(ctx: typer.Context, db: Db = None, org: Org = None, *, as_json: Json = False) -> None:
    """Take the shared options that stand before a command."""
    ctx.obj = Target(db, org, as_json)


def with_target(function: Callable[..., int | None]) -> Callable[..., None]:
    """Give a command the shared options; its first parameter becomes the ``Target``, its answer the exit code."""

    @functools.wraps(function)
    def command(ctx: typer.Context, **given: Any) -> None:
        outer: Target = ctx.find_root().obj or Target(None, None, json=False)
        db, org, as_json = given.pop("db"), given.pop("org"), given.pop("as_json")
        # An empty name (of a variable that is not set, say) is one that was given: it is refused, not passed over.
        db, org = outer.db if db is None else db, outer.org if org is None else org
        target = Target(db, org, json=as_json or outer.json)
        raise typer.Exit(function(target, **given) or 0)

    _, *own = inspect.signature(function).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    extra = [
        inspect.Parameter(name, keyword, default=default, annotation=kind)
        for name, kind, default in (("db", Db, None), ("org", Org, None), ("as_json", Json, False))
    ]
    context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    parameters = [context, *(item.replace(kind=keyword) for item in own), *extra]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    del command.__wrapped__
    return command
