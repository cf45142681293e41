"""The block of settings `jdbc`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shared.settings.kinds import ANY_TEXT, SECRET_VALUES, TEXT, setting


@dataclass(frozen=True)
class JdbcSettings:
    """A database to load into."""

    url: str = setting(
        TEXT,
        "JDBC URL of a PostgreSQL, MySQL or MariaDB database.",
        required=True,
        secret=True,
        examples=["jdbc:postgresql://localhost:5432/warehouse"],
    )
    user: str | None = setting(TEXT, "User of the database.")
    password: str | None = setting(ANY_TEXT, "Password of the user.", secret=True, repr=False)
    options: Mapping[str, str] = setting(
        SECRET_VALUES,
        "Properties of the connection.",
        unset={},
        repr=False,
        examples=[{"sslmode": "verify-full"}],
    )
