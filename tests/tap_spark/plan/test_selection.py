"""Property selection, compared with a plain version of the Singer specification."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tap_spark.plan.catalog import selected_schema


def entry_of(tree: dict, marks: dict) -> dict:
    metadata = [{"breadcrumb": list(path), "metadata": mark} for path, mark in marks.items()]
    return {"schema": schema_of(tree), "metadata": metadata}


def schema_of(tree: dict) -> dict:
    properties = {
        name: schema_of(child) if child else {"type": "string"} for name, child in tree.items()
    }
    return {"type": "object", "properties": properties}


def paths_of(tree: dict, base: tuple = ()):
    for name, child in tree.items():
        path = (*base, "properties", name)
        yield path
        yield from paths_of(child, path)


def expected(tree: dict, marks: dict, path: tuple) -> bool:
    """Apply the rule to one path, from the top down."""
    for end in range(2, len(path) + 1, 2):
        mark = marks.get(path[:end], {})
        if mark.get("inclusion") == "unsupported":
            return False
        if mark.get("inclusion") != "automatic":
            chosen = mark.get("selected")
            chosen = mark.get("selected-by-default") if chosen is None else chosen
            if chosen is False:
                return False
    return True


names = st.sampled_from(["a", "b", "c d", "$", "e.f"])
trees = st.recursive(
    st.dictionaries(names, st.just({}), min_size=1, max_size=3),
    lambda inner: st.dictionaries(names, inner | st.just({}), min_size=1, max_size=3),
    max_leaves=8,
)
flags = st.sampled_from([None, True, False])
marks = st.fixed_dictionaries(
    {
        "inclusion": st.sampled_from(["automatic", "available", "unsupported", None]),
        "selected": flags,
        "selected-by-default": flags,
    }
)


@given(st.data(), trees)
def test_selection_follows_the_rules(data, tree):
    chosen = {path: data.draw(marks) for path in paths_of(tree) if data.draw(st.booleans())}
    kept = selected_schema(entry_of(tree, chosen))
    for path in paths_of(tree):
        actual = present(kept, path)
        wanted = expected(tree, chosen, path)
        if is_leaf(tree, path):
            assert actual is wanted
        elif actual:
            assert wanted


def is_leaf(tree: dict, path: tuple) -> bool:
    for name in path[1::2]:
        tree = tree[name]
    return not tree


def present(schema: dict, path: tuple) -> bool:
    for name in path[1::2]:
        if name not in schema.get("properties", {}):
            return False
        schema = schema["properties"][name]
    return True


def test_a_struct_without_any_selected_field_is_removed():
    tree = {"a": {"x": {}, "y": {}}, "b": {}}
    off = {"selected": False}
    marks = {("properties", "a", "properties", name): off for name in "xy"}
    assert set(selected_schema(entry_of(tree, marks))["properties"]) == {"b"}


def test_fields_of_structs_in_arrays_are_pruned():
    items = {"type": "object", "properties": {"x": {}, "y": {}}, "required": ["x", "y"]}
    schema = {"properties": {"a": {"type": "array", "items": items}}, "required": ["a"]}
    path = ["properties", "a", "items", "properties", "y"]
    entry = {
        "schema": schema,
        "metadata": [{"breadcrumb": path, "metadata": {"selected": False}}],
    }
    kept = selected_schema(entry)
    assert kept["properties"]["a"]["items"] == {
        "type": "object",
        "properties": {"x": {}},
        "required": ["x"],
    }
    assert kept["required"] == ["a"]
    assert "y" in items["properties"], "the catalog itself must not change"


def test_automatic_wins_over_deselection():
    mark = {"inclusion": "automatic", "selected": False}
    kept = selected_schema(entry_of({"id": {}}, {("properties", "id"): mark}))
    assert set(kept["properties"]) == {"id"}


def test_unsupported_is_never_selected():
    mark = {"inclusion": "unsupported", "selected": True}
    assert not selected_schema(entry_of({"id": {}}, {("properties", "id"): mark}))["properties"]
