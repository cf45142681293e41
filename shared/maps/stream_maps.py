"""The rules of `stream_maps` and flattening, applied to one stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from pyspark.sql import types as T  # noqa: N812

from shared.errors import InvalidSettingsError, SettingsError, Where
from shared.formats.json_schema import spark_type_to_json_schema
from shared.formats.schema_nodes import is_free_form, object_node, resolved_node
from shared.maps.column_makers import (
    Maker,
    Spark,
    Tree,
    changed,
    changed_schema,
    path_hints,
    places,
    with_properties,
)
from shared.maps.expressions.syntax import PARENT
from shared.maps.expressions.values import Names
from shared.maps.flattening import Leaf, exploded, flattened, nullable_node
from shared.maps.map_settings import Definition, MapRule, TransformSettings, alias_of, setting_of
from shared.maps.record_metadata import COLUMNS, DELETED_AT
from shared.maps.transform import Cell, Condition, Explode, Transform
from shared.settings.checking import nearest


@dataclass(frozen=True)
class StreamOutput:
    """A mapped stream under one name.

    `transform` is None if rows are unchanged; `notes` are lines for the log.
    """

    stream: str
    schema: Mapping[str, Any]
    key_properties: tuple[str, ...]
    transform: Transform | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _SourceStream:
    """A source stream, or the elements of an array of one, which is then `parent`."""

    settings: TransformSettings
    stream: str
    schema: Mapping[str, Any]
    struct: T.StructType
    key_properties: tuple[str, ...]
    spark: Spark | None
    parent: _SourceStream | None = None
    explode: Explode | None = None

    def exploded(self, rule: MapRule) -> _SourceStream:
        """Return the elements of an array that an entry names; see `shared.maps.flattening`."""
        if rule.explode is None:
            return self
        explode, schema = exploded(rule, self.schema, self.root, self.struct)
        stream = replace(self, schema=schema, struct=explode.struct(), key_properties=())
        return replace(stream, parent=self, explode=explode)

    @property
    def root(self) -> Mapping[str, Any]:
        return resolved_node(self.schema, self.schema)


def outputs(
    settings: TransformSettings,
    stream: str,
    schema: Mapping[str, Any],
    struct: T.StructType,
    key_properties: Sequence[str],
    spark: Spark | None = None,
) -> tuple[StreamOutput, ...]:
    """Return the mapped streams of a stream, one for each name; none for one that is removed.

    Properties that are not columns of its rows, the struct, stay in the schema; rows must get them
    by `keep`. `spark` returns the session, and is called only if a map contains SQL; None for the
    active one.

    Raises:
        InvalidSettingsError: The maps do not fit the stream; lists every problem.
    """
    source = _SourceStream(settings, stream, schema, struct, tuple(key_properties), spark)
    matching = [rule for rule in settings.maps.rules if rule.matches(stream)]
    adding = [rule for rule in matching if rule.source is None]
    primaries = [rule for rule in adding if not rule.only_adds]
    rules = [rule for rule in matching if rule.source is not None]
    if primaries:
        rules = rules if primaries[-1].removed else [primaries[-1], *rules]
    elif adding or not settings.maps.others_removed:
        rules = [MapRule(stream), *rules]
    problems: list[str] = []
    streams = []
    for rule in rules:
        try:
            elements = source.exploded(rule)
        except SettingsError as error:
            problems.append(str(error))
        else:
            streams.append(_Output(elements, rule, adding, problems).plan())
    if problems:
        raise InvalidSettingsError(dict.fromkeys(problems))
    reject_duplicate_names({stream: streams})
    return tuple(streams)


def reject_duplicate_names(outputs_of: Mapping[str, Sequence[StreamOutput]]) -> None:
    """Reject two outputs of a run, by their streams, that have the same name.

    Raises:
        SettingsError: Two outputs have the same name.
    """
    sources: dict[str, str] = {}
    for stream, its_outputs in outputs_of.items():
        for output in its_outputs:
            if output.stream in sources:
                first = sources[output.stream]
                both = f"streams {first!r} and {stream!r}" if first != stream else f"{stream!r}"
                raise SettingsError(
                    f"two outputs of {both} have the name {output.stream!r}",
                    where=Where(setting="stream_maps"),
                    hint="give one of them another '__alias__' or key",
                )
            sources[output.stream] = stream


@dataclass(frozen=True)
class _Line:
    """How a property is made, and its place in the settings."""

    definition: Definition
    where: Where


class _Output:
    def __init__(
        self, source: _SourceStream, rule: MapRule, adding: Sequence[MapRule], problems: list[str]
    ) -> None:
        self.source = source
        self.rule = rule
        self.adding = adding if rule in adding or rule.source is None else [*adding, rule]
        self.patterns = [
            (rule, line.name, _Line(line.definition, setting_of(rule.key, line.name)))
            for rule in self.adding
            for line in rule.properties
            if line.is_pattern
        ]
        self.problems = problems
        self.name = self._name()
        self.keys = source.key_properties if rule.keys is None else rule.keys
        properties = source.root.get("properties")
        self.properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
        names = Names(
            struct=source.struct,
            config=source.settings.config,
            stream=self.name,
            original=source.stream,
            faker=source.settings.faker,
        )
        self.maker = Maker(names, source.spark)
        self.failed: set[str] = set()
        self.array = () if source.explode is None else source.explode.path

    def plan(self) -> StreamOutput:
        """Plan the output; add all problems to `problems`."""
        source, rule = self.source, self.rule
        lines = self._lines()
        self._check_hidden()
        if is_free_form(source.schema):
            patterns = [line.where for _, _, line in self.patterns]
            if lines or patterns or rule.filter is not None or rule.only_named:
                text = f"the schema of stream {source.stream!r} has no properties to map"
                self._add_problem(patterns[0] if patterns else setting_of(rule.key), text)
            return StreamOutput(self.name, source.schema, tuple(self.keys), None)
        # 1. The columns: kept, renamed or computed.
        condition = self._condition(lines)
        leaves = self._leaves(lines)
        computed = any(leaf.cell.computed for leaf in leaves)
        touched = computed or bool(lines or condition or source.explode)
        # 2. Nested ones become several; only those at the top can still be keys.
        rules = source.settings.flattening
        keys = {name: name for name in self.keys}
        if rules.active:
            try:
                parts = flattened(leaves, source.schema, rules)
            except ValueError as error:
                self._add_problem(Where(stream=source.stream), f"flattening: {error}")
                parts = tuple(leaves)
            keys = {part.path[0]: part.cell.name for part in parts if len(part.path) == 1}
            leaves = list(parts)
        # 3. Records that stay as they are need no transform: it would cost a pass over the rows.
        checked = self._checked_keys(leaves, keys)
        is_whole = not rules.active and not rule.only_named
        if not touched and (is_whole or _is_identity(leaves, source)):
            return StreamOutput(self.name, source.schema, checked, None)
        cells = tuple(leaf.cell for leaf in leaves if leaf.cell.path or leaf.cell.computed)
        values = tuple(dict.fromkeys(cell.computed for cell in cells if cell.computed is not None))
        notes = tuple(self.maker.notes)
        transform = Transform(cells, values, condition, notes, source.explode)
        properties = {leaf.cell.name: leaf.node for leaf in leaves}
        required = [leaf.cell.name for leaf in leaves if leaf.required]
        schema = with_properties(source.root, properties, required)
        return StreamOutput(self.name, schema, checked, transform, notes)

    def _name(self) -> str:
        rule, stream = self.rule, self.source.stream
        if rule.source is not None:
            return stream if rule.key == rule.source else rule.key
        if rule.alias is None:
            return stream
        where = setting_of(rule.key, "__alias__")
        try:
            return alias_of(rule.alias, stream, where)
        except SettingsError as error:
            self._add_problem(where, f"for stream {stream!r}: {error.message}", error.hint)
            return stream

    def _add_problem(self, where: Where, text: str, hint: str = "") -> None:
        self.problems.append(str(SettingsError(text, where=where, hint=hint)))

    def _add_problems(self, error: SettingsError) -> None:
        problems = error.problems if isinstance(error, InvalidSettingsError) else (str(error),)
        self.problems.extend(problems)

    def _lines(self) -> dict[str, _Line]:
        """Return the entry that applies to each property: its own, else the last pattern."""
        literal = {
            line.name: _Line(line.definition, setting_of(self.rule.key, line.name))
            for line in self.rule.properties
            if not line.is_pattern or line.name in self.properties
        }
        lines: dict[str, _Line] = {}
        for rule, pattern, line in self.patterns:
            lines |= dict.fromkeys(self._matching(pattern, rule is self.rule), line)
        return {**{n: line for n, line in lines.items() if n not in literal}, **literal}

    def _matching(self, pattern: str, own: bool) -> Iterator[str]:
        """Yield the properties that match a pattern, without those that the own rule drops."""
        # The name of a property may look like a pattern; it then matches only itself.
        index = self.rule.index
        candidates = (pattern,) if pattern in self.properties else self.properties
        for name in candidates:
            is_dropped = self.rule.only_named and not own and name not in self.keys
            matches = name == pattern or self._matches(name, pattern)
            if matches and name not in COLUMNS and not is_dropped and (own or name != index):
                yield name

    def _matches(self, path: str, pattern: str) -> bool:
        """Return whether a pattern matches a path, also as that of the record around an element."""
        explode = self.source.explode
        paths = [path]
        if explode is not None and "." in pattern:
            paths.append(explode.origin(path))
        return any(fnmatchcase(path, pattern) for path in paths)

    def _check_hidden(self) -> None:
        """Reject patterns of others that hide the array: its elements would not be hidden."""
        explode = self.source.explode
        others = [(name, line) for rule, name, line in self.patterns if rule is not self.rule]
        for path in () if explode is None else explode.hidden:
            for pattern, line in others:
                if ("." in pattern or "." not in path) and fnmatchcase(path, pattern):
                    text = f"it would not hide the elements of {path!r} in {self.rule.key!r}"
                    self._add_problem(line.where, text)

    def _condition(self, lines: Mapping[str, _Line]) -> Condition | None:
        if self.rule.filter is None:
            return None
        try:
            where = setting_of(self.rule.key, "__filter__")
            definitions = (line.definition for line in lines.values())
            return self.maker.condition(self.rule.filter, where, definitions)
        except SettingsError as error:
            self._add_problems(error)
            return None

    def _leaves(self, lines: Mapping[str, _Line]) -> list[Leaf]:
        """Return the properties of the result: those of the stream in order, then new ones."""
        leaves = []
        always = {*self.keys, DELETED_AT, self.rule.index}
        for name in [*self.properties, *(name for name in lines if name not in self.properties)]:
            line = lines.get(name)
            if line is not None and name not in self.properties:
                self.maker.notes += path_hints(name, self.source.struct, line.where)
            if line is None:
                if not self.rule.only_named or name in always:
                    leaves.append(self._unchanged(name))
            elif line.definition is None:
                self._drop(name, line.where)
            else:
                leaves += self._computed(name, line.definition, line.where)
        return leaves

    def _unchanged(self, name: str) -> Leaf:
        leaf = self._copied(name, (name,))
        tree = self._inside(name, leaf.cell.data_type)
        if not tree.fields or name in self.failed:
            return leaf
        try:
            computed = changed(name, leaf.cell.data_type, tree)
        except ValueError as error:
            self._add_problem(
                setting_of(self.rule.key), f"patterns for fields inside {name!r}: {error}"
            )
            return leaf
        node = changed_schema(self.source.schema, leaf.node, leaf.cell.data_type, tree)
        cell = Cell(name, computed.data_type, leaf.cell.nullable, computed=computed)
        return Leaf(cell, node, leaf.required)

    def _inside(self, name: str, kind: T.DataType) -> Tree:
        """Return the changes that patterns of paths make inside a property."""
        tree, done = Tree(), set[tuple[str, ...]]()
        for place in places((name,), kind) if name not in COLUMNS else ():
            line = self._line_of(".".join(place.path))
            if line is None or any(place.path[: len(path)] == path for path in done):
                continue
            done.add(place.path)
            try:
                tree.add(self.maker.inside(place, line.definition, line.where))
            except SettingsError as error:
                self._add_problems(error)
                self.failed.add(name)
        return tree

    def _line_of(self, path: str) -> _Line | None:
        """Return the last entry whose pattern has a dot and matches a path."""
        latest = reversed(self.patterns)
        matching = (line for _, name, line in latest if "." in name and self._matches(path, name))
        return next(matching, None)

    def _drop(self, name: str, where: Where) -> None:
        if name in self.keys:
            text = f"{name!r} is a key property of {self.name!r} and cannot be dropped"
            hint = "list the remaining keys in '__key_properties__', or set it to null"
            self._add_problem(where, text, hint)
            self.failed.add(name)
        elif name not in self.properties:
            match = nearest(name, self.properties)
            hint = f"; did you mean {match!r}?" if match else ""
            self.maker.notes.append(f"{where.setting}: cannot drop an unknown property{hint}")

    def _computed(self, name: str, definition: Any, where: Where) -> Iterator[Leaf]:
        try:
            cell = self.maker.make(definition, name, where)
        except SettingsError as error:
            self._add_problems(error)
            self.failed.add(name)
            return
        if cell.path:
            yield self._copied(name, cell.path)
        else:
            yield Leaf(replace(cell, name=name), spark_type_to_json_schema(cell.data_type))

    def _copied(self, name: str, path: tuple[str, ...]) -> Leaf:
        """Return a property that is a column of the stream, or a field inside one."""
        document, parent = self.source.schema, self.source.parent
        node: Mapping[str, Any] | None = self.source.root
        kind: T.DataType = self.source.struct
        nullable, required = False, True
        for step, part in enumerate(path):
            inside = node if step == 0 else object_node(document, node or {})
            is_parent = parent is not None and step == 0 and part == PARENT
            named = is_parent or part in (inside or {}).get("required", ())
            node = (inside or {}).get("properties", {}).get(part)
            node = parent.root if parent is not None and is_parent else node
            field = kind[part] if isinstance(kind, T.StructType) and part in kind.names else None
            if field is None:
                return Leaf(Cell(name, T.NullType()), node or {}, False)
            if node is None:
                node = spark_type_to_json_schema(field.dataType, field.nullable)
            node = nullable_node(node) if nullable else node
            required = required and named and not nullable
            nullable = nullable or field.nullable
            kind = field.dataType
        if parent is not None and path[0] == PARENT and path[1:] == self.array[: len(path) - 1]:
            # Made anew, without the array.
            node = spark_type_to_json_schema(kind, nullable)
        return Leaf(Cell(name, kind, nullable, path), node or {}, required)

    def _checked_keys(self, leaves: Sequence[Leaf], keys: Mapping[str, str]) -> tuple[str, ...]:
        """Return the keys under their new names."""
        names = {leaf.cell.name for leaf in leaves}
        renamed = tuple(keys.get(name, name) for name in self.keys)
        is_set = self.rule.keys is not None
        where = setting_of(self.rule.key, "__key_properties__" if is_set else None)
        for name in renamed:
            if name not in names and name not in self.failed:
                match = nearest(name, names)
                hint = f"did you mean {match!r}?" if match else ""
                text = f"the key property {name!r} is not a property of the mapped stream"
                self._add_problem(where, text, hint)
        return renamed


def _is_identity(leaves: Sequence[Leaf], source: _SourceStream) -> bool:
    """Return whether flattening has not changed anything."""
    plain = all(leaf.cell.path == (leaf.cell.name,) for leaf in leaves if leaf.cell.path)
    same = [leaf.node for leaf in leaves] == list(source.root.get("properties", {}).values())
    return plain and same and not any(leaf.cell.finish for leaf in leaves)
