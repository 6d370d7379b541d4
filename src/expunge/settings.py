"""The one settings model: ``expunge.toml`` in the working folder, then ``EXPUNGE_*``, then the command line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from expunge.errors import SettingsError
from expunge.model.ids import check_id, shown

CONFIG_NAME = "expunge.toml"
PREFIX = "EXPUNGE_"
NOT_SETTINGS = ("EXPUNGE_LOCOMO", "EXPUNGE_CONFIG")
"""Environment names that are no settings: the test data's path, and where the configuration file is."""
TEST_PREFIX = "EXPUNGE_TEST_"


class Processing(BaseModel):
    """What only the controller knows of the processing: for the record of Article 30 GDPR. A table of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    controller: str = Field("", description="Name and address of the controller.")
    contact: str = Field("", description="How the controller is reached.")
    representative: str = Field("", description="The representative in the Union, where one is needed.")
    protection_officer: str = Field("", description="The data protection officer, where there is one.")
    data_subjects: list[str] = Field(default=[], description="The categories of people.")
    recipients: list[str] = Field(default=[], description="To whom data are disclosed.")
    transfers: list[str] = Field(
        default=[], description="Third countries, with the safeguards; `[]` says that there are none."
    )
    security: list[str] = Field(default=[], description="Measures beside those of Expunge.")
    purpose: str = Field("", description="What data are processed for, where no collection says otherwise.")
    legal_basis: str = Field("", description="On which basis.")
    purposes: dict[str, str] = Field(default={}, description="The same for single collections.")
    retention: dict[str, str] = Field(default={}, description="How long they are kept, for single collections.")


class Settings(BaseModel):
    """Everything that can be set; unknown names are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    db: str = Field("./expunge.db", description="Database: a path, `sqlite:///PATH`, `:memory:`, or `postgresql://…`.")
    org: str = Field("default", description="Org (tenant) that calls speak of when they name none.")
    keys_file: Path | None = Field(
        None,
        description="Key file. Default: `expunge.keys` beside the configuration file, else beside the database; "
        "in memory for a database in memory; in the working folder for PostgreSQL.",
    )
    objects: Path | None = Field(
        None,
        description="Folder for the bytes of attachments. Default: beside the database, named as it is and ending in "
        "`.objects`; none for a database in memory; `expunge.objects` in the working folder for PostgreSQL.",
    )
    actor: str = Field("operator", description="Who acts in local calls, as the audit says it by pseudonym.")
    max_value_bytes: int = Field(
        1024 * 1024, gt=0, le=256 * 1024 * 1024, description="Most bytes of UTF-8 in one field of a record."
    )
    max_attachment_bytes: int = Field(
        64 * 1024 * 1024, gt=0, le=16 * 1024**3, description="Most bytes of one attachment."
    )
    embedder: Literal["hashing", "wordllama", "none"] = Field(
        "hashing",
        description="What makes vectors: `hashing` (letters' n-grams, no model), `wordllama` (the extra of that name), "
        "`none`. An object given in Python takes its place.",
    )
    vector_scan_rows: int = Field(
        5000,
        gt=0,
        le=10_000_000,
        description="Most vectors that a search compares. Among more, the newest of them and what the words found.",
    )
    derive_timeout_s: float = Field(60.0, gt=0, le=3600, description="Seconds to wait for one answer of a deriver.")
    embed_timeout_s: float = Field(30.0, gt=0, le=3600, description="Seconds to wait for one answer of the embedder.")
    processing: Processing = Field(
        Processing(),
        description="What the record of Article 30 GDPR needs to know beside the data map: a table of the file, see "
        "[answering a subject request](../subject-request.md).",
    )
    batch_rows: int = Field(
        20_000,
        gt=0,
        le=1_000_000,
        description="Most records that one commit of an erasure marks or removes. Fewer let other writers in sooner; "
        "more are faster, and an erasure of up to so many takes three commits in all.",
    )
    max_attempts: int = Field(5, gt=0, le=100, description="Attempts after which an erasure is abandoned.")
    busy_timeout_s: float = Field(10.0, gt=0, le=3600, description="Seconds to wait for another process that writes.")
    connections: int = Field(
        10, gt=0, le=1000, description="Most connections to PostgreSQL at once; one more counts what is left."
    )
    store_timeout_s: float = Field(
        60.0, gt=0, le=3600, description="Seconds to wait for one answer of a store outside the database."
    )
    reclaim_wait_s: float = Field(
        5.0, ge=0, le=3600, description="Seconds to wait for readers that keep erased pages in the WAL."
    )

    @field_validator("*", mode="before")
    @classmethod
    def _is_no_truth_value(cls, value: object, info: ValidationInfo) -> object:
        """``true`` for a number would be taken for 1, which is a limit that nobody has asked for."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation in (int, float):
            raise ValueError("a truth value is not a number")
        return value

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Read the configuration file and the environment, and lay ``given`` (what is not ``None``) over them.

        Raises:
            SettingsError: a name that is no setting, a value that does not fit, a file that cannot be read.

        """
        environ = os.environ if environ is None else environ
        path = config_path(environ)
        values = _from_file(path) if path else {}
        if path:
            values["keys_file"] = path.parent / str(values.get("keys_file", "expunge.keys"))
        values |= _from_environment(environ, set(cls.model_fields))
        values |= {name: value for name, value in given.items() if value is not None}
        try:
            settings = cls(**values)
        except ValidationError as fault:
            first = fault.errors()[0]
            name = ".".join(str(part) for part in first["loc"]) or "settings"
            raise SettingsError(f"setting {shown(name)}: {first['msg'].lower()}") from None
        check_id(settings.org, "org")
        check_id(settings.actor, "actor")
        return settings


def config_path(environ: Mapping[str, str]) -> Path | None:
    """The configuration file in force: ``EXPUNGE_CONFIG``, else ``expunge.toml`` here, else none."""
    if named := environ.get("EXPUNGE_CONFIG"):
        return Path(named)
    return Path(CONFIG_NAME) if Path(CONFIG_NAME).is_file() else None


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise SettingsError(f"{path} cannot be read: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise SettingsError(f"{path} is not TOML: {fault}") from None


def _from_environment(environ: Mapping[str, str], known: set[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in environ.items():
        if not name.startswith(PREFIX) or name.startswith(TEST_PREFIX) or name in NOT_SETTINGS:
            continue
        field = name.removeprefix(PREFIX).lower()
        if field not in known:
            raise SettingsError(f"{shown(name)} is not a setting")
        values[field] = value
    return values
