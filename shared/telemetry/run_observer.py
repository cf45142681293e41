"""Who is told what happens in a run, and the datasets that are named there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Fields = tuple[tuple[str, str], ...]
"""Names of columns with their types."""


@dataclass(frozen=True)
class Dataset:
    """Something that a run reads or writes, under the names of OpenLineage.

    Attributes:
        name: Its name in the namespace; for a stream that of its messages.
        namespace: Where it is; None for a stream of messages, which has a place in no storage.
        fields: Its columns.
        table: Its name among the `tables` of the stream in the run summary, if it has one.
    """

    name: str
    namespace: str | None = None
    fields: Fields = ()
    table: str | None = None

    @property
    def place(self) -> str | None:
        """Where it is, for people: a path, or a URL-like name; None for a stream of messages."""
        if self.namespace is None:
            return None
        return self.name if self.namespace == "file" else f"{self.namespace}/{self.name}"


class RunObserver(Protocol):
    """Told by the summary of a run; called from any thread.

    No method may wait for another system, but for `ended`, which waits for a short time at most.
    """

    def uses(self, stream: str, datasets: Iterable[Dataset], *, is_output: bool) -> None:
        """Take the datasets that a stream reads or writes; they may have been told before."""
        ...

    def counts(self, stream: str, counts: Mapping[str, float]) -> None:
        """Take what was added to counts of a stream; names are those of the run summary."""
        ...

    def ended(self, facts: Mapping[str, Any]) -> None:
        """Take the run summary: the run has ended."""
        ...


def schema_fields(schema: Mapping[str, Any]) -> Fields:
    """Return the properties of a JSON Schema with their types, `date-time` before `string`."""
    return tuple((name, _type_of(kind)) for name, kind in (schema.get("properties") or {}).items())


def _type_of(kind: Any) -> str:
    if not isinstance(kind, Mapping):
        return "any"
    if isinstance(kind.get("format"), str):
        return str(kind["format"])
    types = kind.get("type")
    named = [types] if isinstance(types, str) else types or ()
    return next((str(name) for name in named if name != "null"), "any")
