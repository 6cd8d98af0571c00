"""Checks the language of docstrings, messages and documents; `make lint` runs it.

    python -m tests.language_check

A docstring begins with an imperative or a noun phrase; relative clauses say what they belong to.
"""

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
FOREIGN = re.compile(
    r"\b(of\s+which|what\s+is\s+said|where\s+there\s+is\s+none|as\s+of)\b", re.IGNORECASE
)
FIRST_WORDS = re.compile(r"\s*(What|Whether|See)\b")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def violations(name: str, text: str) -> Iterator[str]:
    """Yields the places of a file that have one of the patterns."""
    for found in FOREIGN.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield f"{name}:{line}: {' '.join(found.group().split())!r}"
    for node in ast.walk(ast.parse(text)) if name.endswith(".py") else ():
        if isinstance(node, DOCUMENTED) and FIRST_WORDS.match(ast.get_docstring(node) or ""):
            yield f"{name}:{getattr(node, 'lineno', 1)}: the docstring's first word"


if __name__ == "__main__":
    command = ["git", "ls-files", "*.py", "*.md", ":!tests/language_check.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in listed.stdout.split()}
    wrong = [place for name, text in texts.items() for place in violations(name, text)]
    print("\n".join(wrong) or "the language is plain")
    sys.exit(bool(wrong))
