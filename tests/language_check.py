"""Checks the language of docstrings, messages and documents; `make lint` runs it.

    python -m tests.language_check

Plain English, as in the documentation of Keras: a docstring begins with an imperative or a noun
phrase, and relative clauses say what they belong to.
"""

from __future__ import annotations

import ast
import pathlib
import re
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
FOREIGN = re.compile(r"\bof which\b|\bwhat is said\b|\bwhere there is none\b|\bas of\b", re.I)
FIRST_WORDS = re.compile(r"\s*(What|Whether|See)\b")


def in_code(file: pathlib.Path) -> Iterator[str]:
    """Yields the places where strings, docstrings and comments have one of the patterns."""
    text = file.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if found := FOREIGN.search(line):
            yield f"{file.relative_to(ROOT)}:{number}: {found.group()!r}"
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and FIRST_WORDS.match(ast.get_docstring(node) or ""):
            line = getattr(node, "lineno", 1)
            yield f"{file.relative_to(ROOT)}:{line}: the docstring's first word"


def in_document(file: pathlib.Path) -> Iterator[str]:
    """Yields the lines of a document that have one of the patterns."""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if found := FOREIGN.search(line):
            yield f"{file.relative_to(ROOT)}:{number}: {found.group()!r}"


def violations() -> list[str]:
    """Returns the places, a line each."""
    code = [f for f in ROOT.glob("**/*.py") if not f.relative_to(ROOT).parts[0].startswith(".")]
    made = {"runs", "build"}
    code = [f for f in code if f != pathlib.Path(__file__) and not made & {*f.parts}]
    documents = [
        f for place in ("", "docs/", "docs/log/", "released/") for f in ROOT.glob(f"{place}*.md")
    ]
    return sorted(
        [w for f in code for w in in_code(f)] + [w for f in documents for w in in_document(f)]
    )


if __name__ == "__main__":
    wrong = violations()
    print("\n".join(wrong) or "the language is plain")
    sys.exit(bool(wrong))
