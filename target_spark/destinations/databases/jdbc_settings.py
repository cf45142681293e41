"""The block of settings `jdbc`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class JdbcSettings:
    """A database to load into.

    Attributes:
        url: JDBC URL.
        user: User of the database.
        password: Password of the user.
        options: Properties of the connection.
    """

    url: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
