"""Trace a run: `python -m tools.trace tap|target ARGUMENT...` lists what it passes of the project.

Each line is a file and a function, in the order of their first calls. What is imported together
with the command line is left out; bodies of classes of modules that the run imports later count as
functions, as they run.
"""

from __future__ import annotations

import sys
import threading
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("shared/", "tap_spark/", "target_spark/")


def traced(program: str, arguments: list[str]) -> list[tuple[str, str]]:
    """Run `tap` or `target` with arguments; return the file and function of each first call."""
    root, calls = f"{ROOT}/", dict[tuple[str, str], None]()
    main = import_module(f"{program}_spark.cli").main

    def profile(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        file = code.co_filename.removeprefix(root)
        if event == "call" and file.startswith(PACKAGES) and not code.co_name.startswith("<"):
            calls.setdefault((file, code.co_qualname))  # type: ignore[attr-defined,unused-ignore]

    sys.argv = [f"{program}-spark", *arguments]
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        main()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type,unused-ignore]
    return list(calls)


if __name__ == "__main__":
    for place, function in traced(sys.argv[1], sys.argv[2:]):
        print(f"{place} {function}", file=sys.stderr)
