"""A corpus that is available on every machine: the docstrings of installed packages.

`--corpus_format installed_documentation` of build_pretraining_data.py reads it.
"""

from __future__ import annotations

import ast
import collections
import inspect
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator

from convbert.common import storage
from convbert.common.errors import InputError
from convbert.data.readers.base import Corpus, Document, Unit, encodable, readable_file

# Test suites and bundled copies of other packages repeat other text.
_SKIPPED_FOLDER = re.compile(r"__pycache__|tests?|testing|externals|_?vendor(ed)?")
# An older copy of `keras`: the two share up to 43 % of their longer lines verbatim, so held-out
# text would also be trained on.
_SKIPPED_PACKAGES = ("tensorflow/python/keras",)
_SOURCE = re.compile(r"(?!test_)(?!.*_test\.py).*\.py")

_UNDERLINE = re.compile(r"[^\w\s]{3,}$")
_NO_WORDS = re.compile(r"[\W_]*$")
_ITEM = re.compile(r"([-*+•]|\d+[.)]) |\*{0,2}`?\w+`?( ?\([^)]*\))? ?: ")
# Function words, which are frequent in any English prose.
_FUNCTION_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be by can for from has if in is it its not of on or that the then this "
        "to used was when which will with you",
    )
)
_MIN_WORDS = 40
_MIN_FUNCTION_WORDS = 0.15  # their share among the words of a document


class InstalledDocumentation(Corpus):
    """Docstrings of the modules, classes and functions of installed packages.

    The source files are parsed, never imported. One docstring is one document, reduced to its
    prose: removes code, doctests, tables and section headings, and joins wrapped lines. Documents
    with little prose are left out ("short_documents"), as are repetitions of a document within a
    unit ("duplicate_documents"). Duplicates across units are kept, so that units stay independent.
    """

    files_per_unit = 256

    def __init__(self, path: str) -> None:
        """`path` lists names of installed packages, such as "numpy,scipy"."""
        self._names = frozenset(path.split(","))
        super().__init__(sysconfig.get_paths()["purelib"])

    def _find_units(self) -> Iterator[Unit]:
        for package in sorted(self._names):
            members = _source_files(self.path, package)
            if not package or not members:
                raise InputError(
                    "The corpus should be names of installed packages, with commas between."
                    f" Received: {package!r}, which has no Python files"
                )
            for start in range(0, len(members), self.files_per_unit):
                part = tuple(members[start : start + self.files_per_unit])
                yield Unit(f"{package}@{start}", self.path, members=part)

    def documents(self, unit: Unit, problems: collections.Counter) -> Iterator[Document]:
        """Yields the unit's docstrings, sorted by file name and line."""
        seen: set[tuple[str, ...]] = set()
        for member in unit.members:
            for line, docstring in _docstrings(os.path.join(unit.path, member), problems):
                lines = prose_lines(docstring)
                if not is_prose(lines):
                    problems["short_documents"] += 1
                elif tuple(lines) in seen:
                    problems["duplicate_documents"] += 1
                else:
                    seen.add(tuple(lines))
                    yield Document(f"{member}:{line}", lines)


def _source_files(root: str, package: str) -> list[str]:
    """Lists the Python files of a package: sorted names below `root` with forward slashes."""
    found = []
    for folder, subfolders, files in storage.walk(os.path.join(root, package)):
        place = os.path.relpath(folder, root).replace(os.sep, "/")
        subfolders[:] = [
            name
            for name in subfolders
            if not _SKIPPED_FOLDER.fullmatch(name) and f"{place}/{name}" not in _SKIPPED_PACKAGES
        ]
        found += [f"{place}/{name}" for name in files if _SOURCE.fullmatch(name)]
    return sorted(found)


def _docstrings(path: str, problems: collections.Counter) -> Iterator[tuple[int, str]]:
    """Yields (line, docstring) of a file's module, classes and functions, by line."""
    with readable_file(path) as file:
        source = file.read()
    if b'"""' not in source and b"'''" not in source:
        return  # no docstring is long enough, and parsing takes most of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other packages
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        problems["unparsable_files"] += 1
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node, clean=False)):
            found.append((getattr(node, "lineno", 1), encodable(docstring)))
    yield from sorted(found)


def prose_lines(docstring: str) -> list[str]:
    """Reduces a docstring to prose, with one paragraph or list item per line.

    Leaves out doctests and their output, fenced blocks, the indented block after "::", directives,
    headings with their underlines, and lines without a letter or digit. A line that is indented
    less than the one before, or looks like a list item or a parameter, begins a new line; any other
    line continues a wrapped one.
    """
    raw = inspect.cleandoc(docstring).split("\n")
    result: list[str] = []
    fenced = in_doctest = continues = False
    literal_above = None  # indentation of the line that ended in "::"
    previous_indent = 0
    for index, line in enumerate(raw):
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if text.startswith("```"):
            fenced, continues = not fenced and text.count("```") == 1, False
            continue
        if not text:
            in_doctest = continues = False
            continue
        if literal_above is not None and indent > literal_above:
            continue
        literal_above = indent if text.endswith("::") else None
        in_doctest = in_doctest or text.startswith(">>>")
        heading = index + 1 < len(raw) and _UNDERLINE.match(raw[index + 1].strip())
        if fenced or in_doctest or heading or text.startswith(".. ") or _NO_WORDS.match(text):
            continues = False
            continue
        if continues and indent >= previous_indent and not _ITEM.match(text):
            result[-1] += " " + text
        else:
            result.append(text)
        continues, previous_indent = True, indent
    return result


def is_prose(lines: list[str]) -> bool:
    """Returns True if a document is long enough and has the function words of English prose."""
    words = " ".join(lines).lower().split()
    common = sum(word in _FUNCTION_WORDS for word in words)
    return len(words) >= _MIN_WORDS and common >= _MIN_FUNCTION_WORDS * len(words)
