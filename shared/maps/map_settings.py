"""Settings of stream maps and flattening, and the rules that `stream_maps` is read into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from shared.errors import SettingsError, Where
from shared.maps.expressions.syntax import Expression, parse
from shared.maps.sql_expressions import Sql, sql_expression
from shared.settings.checking import INVALID, Json, Location, Problem, is_for, nearest
from shared.settings.kinds import (
    ANY_TEXT,
    FREE,
    SWITCH,
    Schema,
    at_least,
    object_of,
    schema_of,
    setting,
    typed,
)
from shared.settings.loading import KEEP

NULL = "__NULL__"
"""Means null in configurations that cannot hold one."""

SETTING = "stream_maps"

Definition = Expression | Sql | None
"""How a property is computed; None drops it."""

Report = Callable[[Location, str], None]
Reader = Callable[[Location, Json, Report], dict[str, Any]]


@dataclass(frozen=True)
class Property:
    """One entry of a map: a property, or a pattern of names, and how it is computed."""

    name: str
    definition: Definition

    @property
    def is_pattern(self) -> bool:
        """Return whether the name may match several properties."""
        return any(character in self.name for character in "*?[")


@dataclass(frozen=True)
class MapRule:
    """The entry of `stream_maps` under one key.

    Attributes:
        key: The key: a pattern of stream names, or the name of a copy.
        source: Pattern of the streams that are copied (`__source__`).
        alias: Expression for the name of the output stream (`__alias__`).
        removed: The stream is dropped.
        only_named: Properties without an entry of their own are dropped (`__else__`).
        filter: Condition for records to keep (`__filter__`).
        keys: Key properties of the output (`__key_properties__`); None for those of the stream.
        explode: The array whose elements are the records of the copy (`__explode__`).
        index: The property with an element's place in the array (`__index__`).
        properties: The entries, in their order.
    """

    key: str
    source: str | None = None
    alias: str | None = None
    removed: bool = False
    only_named: bool = False
    filter: Expression | Sql | None = None
    keys: tuple[str, ...] | None = None
    explode: str | None = None
    index: str | None = None
    properties: tuple[Property, ...] = ()

    @property
    def pattern(self) -> str:
        """Return the name or pattern of the streams that the rule applies to."""
        return self.key if self.source is None else self.source

    def matches(self, stream: str) -> bool:
        """Return whether the rule applies to a stream."""
        return is_for(self.pattern, stream)

    @property
    def only_adds(self) -> bool:
        """Return whether it only has patterns of properties, which accumulate over all rules."""
        plain = self.alias is None and self.filter is None and self.keys is None
        patterns = bool(self.properties) and all(line.is_pattern for line in self.properties)
        return patterns and plain and self.source is None and not self.only_named


@dataclass(frozen=True)
class MapRules:
    """The whole setting; `others_removed` if streams without a rule are dropped (`__else__`)."""

    rules: tuple[MapRule, ...] = ()
    others_removed: bool = False

    @property
    def patterns(self) -> Mapping[str, str]:
        """Return the names or patterns of streams, by the key of their rule."""
        return {rule.key: rule.pattern for rule in self.rules}


def setting_of(key: str, name: str | None = None) -> Where:
    """Return the place of an entry in the settings."""
    return Where(setting=".".join((SETTING, key, *(() if name is None else (name,)))))


def map_rules(stream_maps: Mapping[str, Json], problems: list[Problem]) -> MapRules:
    """Read `stream_maps`, with nulls and with dots in keys; add every problem to a list."""

    def report(path: Location, text: str) -> None:
        problems.append(Problem((SETTING, *path), text))

    rules, others_removed = [], False
    for key, value in stream_maps.items():
        if key == "__else__":
            others_removed = True
            if not _is_null(value):
                report((key,), _ONLY_NULL)
        elif key.startswith("__"):
            report((key,), f"unknown option; {_options_text(key, ('__else__',))}")
        elif _is_null(value):
            rules.append(MapRule(key, removed=True))
        elif isinstance(value, Mapping):
            rules.append(_rule(key, value, report))
        elif value is not INVALID:
            report((key,), "must be an object with the stream's properties, or null to remove it")
    return MapRules(tuple(rules), others_removed)


_ONLY_NULL = "must be null, which drops everything without an entry of its own"


def _is_null(value: Json) -> bool:
    return value is None or value == NULL


def _options_text(name: str, options: tuple[str, ...]) -> str:
    match = nearest(name, options)
    return f"did you mean {match!r}?" if match else "known are " + ", ".join(map(repr, options))


def _rule(key: str, value: Mapping[str, Json], report: Report) -> MapRule:
    properties = []
    options: dict[str, Any] = {}
    for name, definition in value.items():
        path = (key, name)
        if name in _READERS:
            options.update(_READERS[name](path, definition, report))
        elif name.startswith("__"):
            report(path, f"unknown option; {_options_text(name, tuple(_READERS))}")
        elif _is_null(definition):
            properties.append(Property(name, None))
        else:
            checked = _definition(path, definition, report)
            properties += [Property(name, checked)] if checked is not None else []
    if options.get("source") is not None and options.get("alias") is not None:
        report(
            (key, "__alias__"),
            "cannot be combined with '__source__': the key is the name of the copy",
        )
    for name, needed in (("explode", "source"), ("index", "explode")):
        if options.get(name) is not None and f"__{needed}__" not in value:
            report((key, f"__{name}__"), f"needs '__{needed}__' beside it")
    return MapRule(key, properties=tuple(properties), **options)


def _definition(path: Location, value: Json, report: Report) -> Expression | Sql | None:
    """Return the parsed expression; report a problem and return None if it is invalid."""
    where = setting_of(str(path[0]), str(path[1]))
    try:
        if isinstance(value, str):
            return parse(value, where)
        if isinstance(value, Mapping) and set(value) == {"sql"} and isinstance(value["sql"], str):
            return sql_expression(value["sql"], where)
    except SettingsError as error:
        report(path, _with_hint(error))
        return None
    report(path, 'must be an expression, {"sql": "..."}, or null to drop the property')
    return None


def _with_hint(error: SettingsError) -> str:
    return f"{error.message} ({error.hint})" if error.hint else error.message


def _read_filter(path: Location, value: Json, report: Report) -> dict[str, Any]:
    return {} if _is_null(value) else {"filter": _definition(path, value, report)}


def _read_else(path: Location, value: Json, report: Report) -> dict[str, Any]:
    if not _is_null(value):
        report(path, _ONLY_NULL)
    return {"only_named": True}


def _read_keys(path: Location, value: Json, report: Report) -> dict[str, Any]:
    if _is_null(value):
        return {"keys": ()}
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        report(path, "must be an array of property names, or null for none")
        return {}
    return {"keys": tuple(dict.fromkeys(value))}


def _text_reader(name: str, meaning: str) -> Reader:
    def read(path: Location, value: Json, report: Report) -> dict[str, Any]:
        if not isinstance(value, str) or not value:
            report(path, f"must be {meaning}")
            return {}
        return {name: value}

    return read


_text_of_alias = _text_reader("alias", "a name, or an expression over __stream_name__")


def _read_alias(path: Location, value: Json, report: Report) -> dict[str, Any]:
    option = _text_of_alias(path, value, report)
    where, key = setting_of(str(path[0]), str(path[1])), str(path[0])
    try:
        # The names that a pattern matches are not known yet.
        if option and set(key).isdisjoint("*?["):
            alias_of(option["alias"], key, where)
        elif option:
            parse(option["alias"], where)
    except SettingsError as error:
        report(path, _with_hint(error))
        return {}
    return option


_READERS: Mapping[str, Reader] = {
    "__filter__": _read_filter,
    "__alias__": _read_alias,
    "__source__": _text_reader("source", "the name or pattern of the stream that is copied"),
    "__else__": _read_else,
    "__key_properties__": _read_keys,
    "__explode__": _text_reader(
        "explode", "the name of an array, or its path: names joined by dots"
    ),
    "__index__": _text_reader(
        "index", "the name of the property for an element's place in the array"
    ),
}


def alias_of(text: str, stream: str, where: Where) -> str:
    """Return the name for an `__alias__`: the value of the expression, else the text itself.

    Raises:
        SettingsError: The expression cannot be evaluated, or its value is not a name.
    """
    import simpleeval  # noqa: PLC0415

    parse(text, where)
    evaluator = simpleeval.EvalWithCompoundTypes(names={"__stream_name__": stream})
    try:
        alias = evaluator.eval(text)
    except Exception as error:
        # A name as it stands, such as `public.orders`; no misspelt expression.
        if isinstance(error, simpleeval.NameNotDefined) and set(text).isdisjoint("'\"+("):
            return text
        raise SettingsError(
            f"cannot be evaluated ({type(error).__name__}: {error}); put a literal name in "
            "quotes inside the text",
            where=where,
        ) from None
    if not isinstance(alias, str) or not alias:
        raise SettingsError(f"gives {alias!r}, which is not a name", where=where)
    return alias


@dataclass(frozen=True)
class Flattening:
    """How nested objects are flattened."""

    enabled: bool = setting(
        SWITCH,
        "Turn the fields of nested objects into columns, and arrays and objects with arbitrary "
        "keys into JSON text; see `singer-spark docs stream-maps#flattening`.",
        default=False,
        key="flattening_enabled",
    )
    max_depth: int = setting(
        at_least(0),
        "Levels of nested objects to flatten; deeper ones become JSON text. Required with "
        "`flattening_enabled`.",
        unset=0,
        key="flattening_max_depth",
    )
    max_key_length: int = setting(
        at_least(1),
        "Shorten names that have at least this many characters.",
        default=255,
        key="flattening_max_key_length",
    )
    separator: str = setting(
        ANY_TEXT,
        "Separator between the parts of a flattened name.",
        default="__",
        key="flattening_separator",
    )

    @property
    def active(self) -> bool:
        """Whether records are flattened."""
        return self.enabled and self.max_depth > 0


@dataclass(frozen=True)
class TransformSettings:
    """The transforms of records between reading and writing."""

    maps: MapRules = setting(
        {**FREE, KEEP: True},
        "Changes to streams and their properties, by stream name or pattern: expressions for new "
        "and changed properties, null to drop, and the options `__filter__`, `__alias__`, "
        "`__source__`, `__explode__`, `__index__`, `__else__` and `__key_properties__`; see "
        "`singer-spark docs stream-maps`.",
        default={},
        key="stream_maps",
        make=lambda maps: map_rules(maps, []),
        examples=[{"orders": {"total": "price * quantity", "note": None}}],
    )
    config: Mapping[str, Any] = setting(
        {**FREE, KEEP: True},
        "Values that expressions read as `config['name']`, such as `hash_salt`.",
        default={},
        key="stream_map_config",
        repr=False,
        secret=True,
    )
    faker: Mapping[str, Any] = setting(
        object_of(
            {
                ("seed",): {
                    "type": ["number", "string", "boolean"],
                    "description": "Seed that makes results the same in every run.",
                },
                ("locale",): {
                    "type": ["string", "array"],
                    "items": ANY_TEXT,
                    "description": "One or more locales, such as `de_DE`.",
                },
            }
        ),
        "Settings of `fake` in expressions (needs the extra `faker`).",
        unset={},
        key="faker_config",
        make=dict,
    )
    flattening: Flattening = field(default_factory=Flattening)

    @property
    def active(self) -> bool:
        """Whether any stream is changed."""
        return self.maps != MapRules() or self.flattening.active


NO_TRANSFORMS = TransformSettings()

PROPERTIES: Schema = {
    **schema_of(TransformSettings)["properties"],
    **schema_of(Flattening)["properties"],
}
"""For the settings schema of a program."""


def transform_problems(settings: Mapping[str, Any]) -> Iterator[Problem]:
    """Check the maps, as far as possible without a stream, and the rules between fields."""
    maps = settings.get("stream_maps")
    problems: list[Problem] = []
    if isinstance(maps, Mapping):
        map_rules(maps, problems)
    yield from problems
    if settings.get("flattening_enabled") is True and "flattening_max_depth" not in settings:
        yield Problem((), "'flattening_max_depth' is required if 'flattening_enabled' is true")


def transform_settings(values: Mapping[str, Any]) -> TransformSettings:
    """Return the settings of this module from validated settings with their defaults."""
    return replace(typed(TransformSettings, values), flattening=typed(Flattening, values))


def supplied_transforms(
    supplied: Mapping[str, Any], values: Mapping[str, Any]
) -> TransformSettings:
    """Return `transform_settings` of values, or `NO_TRANSFORMS` if the user supplies none."""
    return NO_TRANSFORMS if supplied.keys().isdisjoint(PROPERTIES) else transform_settings(values)
