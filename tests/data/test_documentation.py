"""Docstrings to prose, and the corpus of a folder of packages."""

import collections

import pytest

from convbert.common.errors import InputError
from convbert.data.corpus import open_corpus
from convbert.data.readers import documentation
from convbert.data.readers.documentation import is_prose, prose_lines

DOCSTRING = """Summary of what it does,
    wrapped over two lines.

    Parameters
    ----------
    x : array_like
        Input data that is
        wrapped.
    y: The second
      value.

    * First item of
      a list.

    Example::

        code = that(is_left_out)

    .. note:: a directive

    >>> doctest()
    "its output"
    ===  ===

    Last paragraph
        goes deeper.

    ```python
    more = code

    after_blank_line()
    ```
    """

PROSE = (
    "The quick brown fox of the story is in the habit of jumping over a lazy dog that is asleep, "
    "and it will do so for as long as the dog can be found in the place where it was when the fox "
    "first came by with its friends"
)


def test_prose_lines_keep_the_prose():
    assert prose_lines(DOCSTRING) == [
        "Summary of what it does, wrapped over two lines.",
        "x : array_like Input data that is wrapped.",
        "y: The second value.",
        "* First item of a list.",
        "Example::",
        "Last paragraph goes deeper.",
    ]


def test_is_prose_rejects_short_texts_and_code():
    assert is_prose([PROSE])
    assert not is_prose([PROSE[:100]])
    assert not is_prose(["x = y + f(z)"] * 50)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    files = {
        "b/__init__.py": f'"""{PROSE} one."""\n',
        "b/code.py": (
            f"def f():\n    '''{PROSE} two.'''\n"
            f"try:\n    class C:\n        def g(self):\n            '''{PROSE} three.'''\n"
            f"except ImportError:\n    async def h():\n        '''{PROSE} four.'''\n"
            f"x = '''{PROSE} not a docstring.'''\n"
            f"def again():\n    '''{PROSE}   one.'''\n"
            f"def short():\n    '''Too short.'''\n"
            f"def escape():\n    '''{PROSE} \\ud800.'''\n"
        ),
        "b/broken.py": "def '''",
        "b/copy.py": f'"""{PROSE} one."""',
        "c/copy.py": f'"""{PROSE} one."""',
        "b/tests/case.py": f'"""{PROSE} tests."""',
        "b/test_it.py": f'"""{PROSE} test file."""',
        "b/_vendor/a.py": f'"""{PROSE} vendored."""',
        "a/a.py": f'"""{PROSE} of another package."""',
    }
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})


@pytest.mark.usefixtures("packages")
def test_documents_of_packages():
    corpus = open_corpus("c,b", "installed_documentation")
    problems = collections.Counter()
    documents = {d.name: d.lines for unit in corpus.units for d in corpus.documents(unit, problems)}
    assert [unit.name for unit in corpus.units] == ["b@0", "c@0"]
    endings = {name: lines[0].removeprefix(PROSE) for name, lines in documents.items()}
    assert list(endings.items()) == [
        ("b/__init__.py:1", " one."),
        ("b/code.py:1", " two."),
        ("b/code.py:5", " three."),
        ("b/code.py:8", " four."),
        ("b/code.py:11", "   one."),
        ("b/code.py:15", " ?."),
        ("c/copy.py:1", " one."),  # duplicates are left out within a unit only
    ]
    assert problems == {"short_documents": 1, "unparsable_files": 1, "duplicate_documents": 1}


@pytest.mark.usefixtures("packages")
def test_a_package_that_is_not_there():
    with pytest.raises(InputError, match="no_such"):
        open_corpus("b,no_such", "installed_documentation")
