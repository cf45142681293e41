"""Report the structure of the code: `python -m tools.structure [REVISION ...]`.

For each revision (the working tree without one): modules and lines of each package, the longest
modules and functions, names of modules and classes that occur more than once, and cycles of
imports. A table beside each other shows what a change did.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("shared", "tap_spark", "target_spark")
SHOWN = 8


@dataclass(frozen=True)
class Structure:
    """What one revision looks like.

    Attributes:
        lines: Dotted module name → lines.
        functions: `(lines, module.function)`, longest first.
        files: Names of modules that occur more than once → how often.
        classes: Names of classes that occur more than once → how often.
        cycles: Groups of modules that import each other, type checking and calls included.
    """

    lines: Mapping[str, int]
    functions: tuple[tuple[int, str], ...]
    files: Mapping[str, int]
    classes: Mapping[str, int]
    cycles: tuple[tuple[str, ...], ...]


def structure_of(sources: Mapping[str, str]) -> Structure:
    """Measure modules.

    Args:
        sources: Dotted module name → source text; packages without `.__init__`.
    """
    trees = {name: ast.parse(text) for name, text in sources.items()}
    functions = sorted(
        (
            ((node.end_lineno or 0) - node.lineno + 1, f"{name}.{node.name}")
            for name, tree in trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        reverse=True,
    )
    classes = Counter(
        node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)
    )
    imports = {name: set(_imports(tree, trees)) - {name} for name, tree in trees.items()}
    return Structure(
        lines={name: text.count("\n") for name, text in sources.items()},
        functions=tuple(functions),
        files=_repeated(Counter(name.rpartition(".")[2] for name in sources)),
        classes=_repeated(classes),
        cycles=tuple(_cycles(imports)),
    )


def _repeated(counted: Counter[str]) -> dict[str, int]:
    return {name: count for name, count in sorted(counted.items()) if count > 1}


def _imports(tree: ast.Module, modules: Mapping[str, object]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules:
                    yield inner
                elif node.module in modules:
                    yield node.module


def _cycles(imports: Mapping[str, set[str]]) -> Iterator[tuple[str, ...]]:
    """Find groups in which every module reaches every other (by reachability, both ways)."""
    reached = {name: _reachable(name, imports) for name in imports}
    seen: set[str] = set()
    for name in sorted(imports):
        group = {other for other in reached[name] if name in reached[other]}
        if name not in seen and group:
            seen |= group | {name}
            yield tuple(sorted(group | {name}))


def _reachable(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imports.get(name, ())
    return reached


def _module(path: str) -> str:
    name = path.removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def sources_of(revision: str | None) -> dict[str, str]:
    """Read the modules of a revision, or of the working tree."""
    if revision is None:
        files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
        return {_module(str(file.relative_to(ROOT))): file.read_text() for file in files}
    paths = _git("ls-tree", "-r", "--name-only", revision, *PACKAGES).split()
    return {_module(p): _git("show", f"{revision}:{p}") for p in paths if p.endswith(".py")}


def _report(structure: Structure) -> Iterator[tuple[str, str]]:
    yield "modules", str(len(structure.lines))
    yield "lines", str(sum(structure.lines.values()))
    for package in PACKAGES:
        inside = {n: count for n, count in structure.lines.items() if n.split(".")[0] == package}
        flat = Counter(name.rpartition(".")[0] for name in inside)
        top, most = flat.most_common(1)[0]
        yield package, f"{len(inside)} modules, {sum(inside.values())} lines"
        yield f"{package}, fullest package", f"{top} ({most})"
    longest = sorted(structure.lines.items(), key=lambda item: -item[1])[:SHOWN]
    yield "longest modules", ", ".join(f"{name} {count}" for name, count in longest)
    yield (
        "longest functions",
        ", ".join(f"{name} {count}" for count, name in structure.functions[:SHOWN]),
    )
    for title, names in (("module names", structure.files), ("class names", structure.classes)):
        text = ", ".join(f"{name} x{count}" for name, count in names.items())
        yield f"{title} used twice or more", f"{len(names)}: {text}"
    yield (
        "cycles of imports",
        f"{len(structure.cycles)}: {'; '.join(', '.join(group) for group in structure.cycles)}",
    )


def main() -> int:
    """Print the report of each revision."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("revisions", nargs="*", help="git revisions; `.` is the working tree")
    for revision in parser.parse_args().revisions or ["."]:
        print(f"# {'working tree' if revision == '.' else revision}")
        structure = structure_of(sources_of(None if revision == "." else revision))
        for title, text in _report(structure):
            print(f"{title:40} {text}")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
