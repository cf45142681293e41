"""Calls: of functions, of what modules have, of methods."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from types import ModuleType

from shared.transforms.expressions import members, operators
from shared.transforms.expressions.building import (
    Fails,
    computed,
    constant,
    not_none,
    settled,
    uncompiled,
)
from shared.transforms.expressions.fakes import FakeSettings, result_kind
from shared.transforms.expressions.functions import FUNCTIONS, METHODS
from shared.transforms.expressions.kinds import ANY, Kind
from shared.transforms.expressions.syntax import nearest
from shared.transforms.expressions.truth import chosen
from shared.transforms.expressions.values import Call, Value

_MODULES = {"datetime": datetime, "json": json}
_ALIKE = frozenset({"bool", "float", "int", "round"})
"""What gives the same for an int and the float that is equal to it."""
_RESULTS = {"list": Kind("list"), "tuple": Kind("list"), "dict": Kind("dict")}


def function(name: str, call: Call) -> Value:
    """Give the result of a function, which has its module's name before it.

    Raises:
        Fails: There is none, or it raises for all arguments of these kinds.
    """
    if "." in name:
        module_attribute(name)
    call = call if name in _ALIKE and len(call.args) == 1 else _settled(call)
    if name in FUNCTIONS:
        return FUNCTIONS[name](call)
    given = (*call.args, *call.keywords.values())
    return uncompiled(_RESULTS.get(name, ANY), f"{name}()", *given)


def _settled(call: Call) -> Call:
    keywords = {name: settled(value) for name, value in call.keywords.items()}
    return replace(call, args=tuple(map(settled, call.args)), keywords=keywords)


def module_attribute(name: str) -> Value:
    """Give what a module has under a dotted name.

    Raises:
        Fails: It has no such thing, or that is a module itself.
    """
    first, *parts = name.split(".")
    found: object = _MODULES[first]
    for part in parts:
        if not hasattr(found, part):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise Fails(f"AttributeError: {first} has no '{part}'{nearest(part, public)}")
        found = getattr(found, part)
        if isinstance(found, ModuleType):
            raise Fails(f"the module '{part}' is not available")
    return uncompiled(ANY, name)


def fake(name: str, call: Call) -> Value:
    """Give the result of a method of `fake`, which only the evaluator has."""
    faker = call.names.faker if call.names is not None else None
    settings = FakeSettings((faker or {}).get("locale"))
    return uncompiled(Kind(result_kind(name, settings)), f"fake.{name}()")


def method(owner: Value, name: str, call: Call) -> Value:
    """Give the result of a method.

    Raises:
        Fails: Such values have no such method, or it raises for all arguments of these kinds.
    """
    owner, call = settled(owner), _settled(call)
    kind = owner.kind
    given = (owner, *call.args, *call.keywords.values())
    if kind.name == "any":
        return uncompiled(ANY, f".{name}() of a value of unknown type", *given)
    if kind.name == "none":
        raise Fails(f"AttributeError: 'NoneType' object has no attribute '{name}'")
    if kind.name == "dict" and name == "get":
        return _get(owner, call)
    if (kind.name, name) in METHODS:
        return METHODS[kind.name, name](owner, call)
    if hasattr(operators.TYPES[kind.name], name):
        return uncompiled(ANY, f".{name}() of {kind.name}", *given)
    if kind.name == "dict" and (not kind.fields or name in dict(kind.fields)):
        raise Fails(f"TypeError: the value under '{name}' is not callable")
    raise operators.no_attribute(kind, name)


def key_of(call: Call) -> str | None:
    """Give the key that `get` is called with; None where it is not known.

    Raises:
        Fails: It is called with too few or too many arguments.
    """
    if call.keywords:
        raise Fails("TypeError: dict.get() takes no keyword arguments")
    if not 1 <= len(call.args) <= 2:  # noqa: PLR2004
        raise Fails(f"TypeError: get expected 1 or 2 arguments, got {len(call.args)}")
    key = call.args[0].known
    return key if isinstance(key, str) else None


def _get(owner: Value, call: Call) -> Value:
    """Give `owner.get(key, default)`; what a struct has under its keys is None, not missing."""
    key = key_of(call)
    default = call.args[1] if len(call.args) > 1 else constant(None)
    if owner.is_known and key is not None:
        return constant(owner.known[key]) if key in owner.known else default
    if key is None or owner.is_known or (not owner.kind.fields and owner.kind.values is None):
        return uncompiled(ANY, "a key that is not known", owner, *call.args)
    return _got(owner, key, default)


def _got(owner: Value, key: str, default: Value) -> Value:
    said = "AttributeError: 'NoneType' object has no attribute 'get'"
    kind = owner.kind.not_none()
    error = computed(kind, lambda whole: whole, owner, checks=not_none(said, owner)).error
    present = replace(owner, kind=kind, error=error)
    if key in dict(owner.kind.fields):
        return operators.entry(present, key)
    has_it = members.contained(constant(key), present)
    if owner.kind.fields:
        return chosen(has_it, default, default)
    return chosen(has_it, replace(operators.entry(present, key), error=None), default)
