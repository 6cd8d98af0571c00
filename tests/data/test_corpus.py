"""Every reader on small corpora and packages, whole and in pieces, and what bad input gets."""

import collections
import gzip
import io
import json
import lzma
import pickle
import random
import tarfile

import pytest

from convbert.common.errors import InputError
from convbert.data.corpus import open_corpus
from convbert.data.readers import base, documentation
from convbert.data.readers.documentation import is_prose, prose_lines
from convbert.data.readers.text import TextCorpus
from convbert.data.readers.wikiextractor import WikiExtractorCorpus


def read(corpus, problems=None):
    problems = collections.Counter() if problems is None else problems
    return [d.lines for unit in corpus.units for d in corpus.documents(unit, problems)]


def tar_of(files, compress=lambda raw: raw):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return compress(buffer.getvalue())


def test_text_documents_end_at_blank_lines(tmp_path):
    (tmp_path / "b.txt").write_text("one\n  two \n\u3000\n\n \nthree\n", encoding="utf-8")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "z.txt").write_bytes(b"\xef\xbb\xbffirst\r\n\r\nsecond")
    (tmp_path / ".hidden").write_text("no")
    (tmp_path / "empty.txt").write_text("")
    corpus = open_corpus(str(tmp_path), "text")
    assert [unit.name for unit in corpus.units] == ["a/z.txt", "b.txt"]
    assert read(corpus) == [["first"], ["second"], ["one", "two"], ["three"]]
    assert read(pickle.loads(pickle.dumps(corpus))) == read(corpus)


def random_text(generator, pieces):
    return "".join(generator.choice(pieces) for _ in range(60))


@pytest.mark.parametrize("range_bytes", [40, 41, 43, 50])  # longer than documents
def test_text_ranges_give_the_whole_file_once(tmp_path, monkeypatch, range_bytes):
    generator = random.Random(range_bytes)
    for trial in range(20):
        path = tmp_path / f"{trial}.txt"
        path.write_text(random_text(generator, ["\n", "\n\n", "a\n", "bé b\n", " \n", "c"]) + "x")
        whole = read(TextCorpus(str(path)))
        monkeypatch.setattr(TextCorpus, "range_bytes", range_bytes)
        pieces = TextCorpus(str(path))
        assert len(pieces.units) > 1
        assert read(pieces) == whole
        monkeypatch.undo()


def test_linked_folders_are_read(tmp_path):
    """One that leads back to a folder above it is an error, as it would never end."""
    for name in ("corpus", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    (tmp_path / "corpus" / "linked").symlink_to(tmp_path / "elsewhere")
    corpus = open_corpus(str(tmp_path / "corpus"), "text")
    assert read(corpus) == [["corpus"], ["elsewhere"]]
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "corpus")
    with pytest.raises((InputError, OSError), match="back"):
        open_corpus(str(tmp_path / "corpus"), "text")


WIKI = """<doc id="1" url="?curid=1" title="A &quot;B&quot; C">
A "B" C

First &lt;i&gt;line&lt;/i&gt; of R&amp;D.
Section.

Second line &amp;lt;
</doc>
<doc id="2" url="?curid=2" title="Only &amp; title">
Only &amp; title


</doc>
<doc id="3" url="?curid=3" title="Other">
Kept, as it is not the title.
</doc>
"""
WIKI_DOCUMENTS = [
    ["First <i>line</i> of R&D.", "Section.", "Second line &lt;"],
    ["Kept, as it is not the title."],
]
ARTICLES = [
    {"id": "1", "url": "u", "title": 'A "B" C', "text": 'A "B" C\n\nFirst.\nSecond.'},
    {"id": "2", "url": "u", "title": "Only & this", "text": "Only &amp; this"},
    {"id": "3", "url": "u", "title": "T", "text": "&lt;Lone&gt; \ud800 surrogate"},
]


@pytest.mark.parametrize("range_bytes", [1, 10, 100])
def test_wikiextractor_ranges_give_the_whole_file_once(tmp_path, monkeypatch, range_bytes):
    (tmp_path / "wiki_00").write_text(WIKI * 3)
    monkeypatch.setattr(WikiExtractorCorpus, "range_bytes", range_bytes)
    corpus = open_corpus(str(tmp_path), "wikiextractor")
    problems = collections.Counter()
    assert len(corpus.units) > 1
    assert read(corpus, problems) == WIKI_DOCUMENTS * 3
    assert problems == {"title_only_documents": 3}


TEXT = "zwölf\n\nsind ein Dutzend".encode()
FIRST = {"0001-a.txt": b"one\n\nstill one\n", "0002-a.txt": b" \n"}
SECOND = {"0001-b.txt": "zwölf".encode(), "readme.md": b"no"}
ARCHIVES = {"a.xz": tar_of(FIRST, lzma.compress), "b.xz": tar_of(SECOND, lzma.compress)}
OPENWEBTEXT = [["one", "still one"], ["zwölf"]], {"empty_documents": 1, "other_files": 1}
TITLE = {"title_only_documents": 1}
READ = [
    *(("text", {name: compress(TEXT)}, [["zwölf"], ["sind ein Dutzend"]], {})
      for name, compress in (("a", bytes), ("a.gz", gzip.compress), ("a.xz", lzma.compress))),
    *(("wikiextractor", {"wiki_00": "\n".join([*first, *map(json.dumps, ARTICLES)]).encode()},
       [["First.", "Second."], ["<Lone> ? surrogate"]], TITLE) for first in ([], [""])),
    ("wikiextractor", {"wiki_00.gz": gzip.compress(f"notes\n{WIKI}\nmore\n".encode())},
     WIKI_DOCUMENTS, {**TITLE, "lines_outside_articles": 2}),
    ("openwebtext", {**ARCHIVES, "notes": b"not an archive"}, *OPENWEBTEXT),
]  # fmt: skip


@pytest.mark.parametrize(("corpus_format", "files", "documents", "noted"), READ)
def test_formats_and_compressions(tmp_path, corpus_format, files, documents, noted):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    problems = collections.Counter()
    path = tmp_path / name if len(files) == 1 else tmp_path
    assert read(open_corpus(str(path), corpus_format), problems) == documents
    assert problems == noted


NOISE = random.Random(0).randbytes(9000).hex().encode()
ARCHIVE = tar_of({f"{i}.txt": NOISE[600 * i : 600 * i + 600] for i in range(30)}, lzma.compress)
TEXTS = ("text", "wikiextractor")
FAULTS = [
    *(("text", {"notes.txt": "Some text.\n".encode(encoding)}, r"notes\.txt must be UTF-8")
      for encoding in ("UTF-16", "UTF-32")),
    ("text", {}, "at least one file"),
    *(("text", {"a": text}, "wikiextractor")
      for text in (WIKI.encode(), b'{"id": "1", "title": "T", "text": "a"}')),
    ("text", {"a.tar.gz": tar_of(FIRST, gzip.compress)}, "openwebtext"),
    ("openwebtext", None, "absent"),
    *((name, {"a": b" \n"}, "at least one document.*Received") for name in TEXTS),
    ("openwebtext", {"a.xz": tar_of({"a.txt": b" "}, lzma.compress)},
     "at least one document.*1 empty documents"),
    ("wikiextractor", {"wiki_00": WIKI[:-10].encode()}, "wiki_00 must end with </doc>"),
    ("wikiextractor", {"wiki_00": WIKI.replace("</doc>", "", 1).encode()}, "wiki_00 byte .*</doc>"),
    ("wikiextractor", {"wiki_00": b'{"id": "1", "title": "T", "text": "a"}\n{"id": 2}\n'},
     r'wiki_00 byte 39: .*`text`'),
    ("openwebtext", {"a.xz": ARCHIVE[:-40]}, r"a\.xz must be readable"),
    ("openwebtext", {"a.xz": b"no archive at all"}, r"a\.xz must be readable"),
    ("text", {"t.gz": gzip.compress(NOISE)[:-20]}, r"t\.gz must be readable"),
]  # fmt: skip


@pytest.mark.parametrize(("corpus_format", "files", "message"), FAULTS)
def test_faults_are_named(tmp_path, corpus_format, files, message):
    for name, content in (files or {}).items():
        (tmp_path / name).write_bytes(content)
    folder = tmp_path / "absent" if files is None else tmp_path
    with pytest.raises(InputError, match=message):
        read(open_corpus(str(folder), corpus_format))


@pytest.mark.parametrize(
    ("range_bytes", "longest"), [(5, 4), (8, 4), (20, 7), (50, 7), (50, 30), (200, 30)]
)
def test_what_is_divided_is_whole_and_bounded(tmp_path, monkeypatch, range_bytes, longest):
    """Documents over several ranges, long lines, words longer than a piece, any blank lines."""
    monkeypatch.setattr(base, "LONGEST_LINE", longest)
    monkeypatch.setattr(TextCorpus, "range_bytes", range_bytes)
    generator = random.Random(range_bytes)
    for trial in range(60):
        parts = ["\n", "\n\n", "a b\n", "é ", " \n", "c", "dünn " * 3, "ไทย" * 4, " " * 9, "\ufeff"]
        path = tmp_path / f"{trial}.txt"
        path.write_text("x" + random_text(generator, parts), encoding="utf-8")
        corpus = open_corpus(str(path), "text")
        problems = collections.Counter()
        documents = read(corpus, problems)
        text = "".join(line for lines in documents for line in lines)
        assert "".join(text.split()) == "".join(path.read_text(encoding="utf-8").split())
        assert not problems
        if range_bytes >= 50:
            assert len(corpus.units) > 1
        assert max(len(line) for lines in documents for line in lines) <= longest
        for lines in documents:  # none over more than its range and the one before
            assert len("".join(lines).encode()) <= 2 * range_bytes


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


def test_prose_is_kept_and_short_texts_and_code_rejected():
    assert prose_lines(DOCSTRING) == [
        "Summary of what it does, wrapped over two lines.",
        "x : array_like Input data that is wrapped.",
        "y: The second value.",
        "* First item of a list.",
        "Example::",
        "Last paragraph goes deeper.",
    ]
    assert is_prose([PROSE])
    assert not is_prose([PROSE[:100]])
    assert not is_prose(["x = y + f(z)"] * 50)


def test_documents_of_packages(tmp_path, monkeypatch):
    endings = {"b/__init__.py": "one", "b/copy.py": "one", "c/copy.py": "one"}
    endings |= {"b/tests/case.py": "tests", "b/test_it.py": "test file"}
    endings |= {"b/_vendor/a.py": "vendored", "a/a.py": "of another package"}
    files = {
        **{name: f'"""{PROSE} {ending}."""\n' for name, ending in endings.items()},
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
    }
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.setattr(documentation.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
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
    with pytest.raises(InputError, match="no_such"):
        open_corpus("b,no_such", "installed_documentation")
