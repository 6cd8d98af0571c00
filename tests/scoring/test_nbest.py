"""N-best lists in both formats, and lists that are wrong."""

import json

import pytest

from errors import InputError
from scoring.nbest import Utterance, read_lists

GOOD = {
    "b-1": {
        "ref": "a b c",
        "hyp_10": {"score": -9, "text": "x"},
        "hyp_2": {"score": -2.5, "text": "a b"},
        "hyp_1": {"score": -1.0, "text": "a b c"},
    },
    "a-2": {"ref": "d", "hyp_1": {"score": 0.5, "text": ""}},
}
EXPECTED = [
    Utterance("b-1", "a b c", ["a b c", "a b", "x"], [-1.0, -2.5, -9.0]),
    Utterance("a-2", "d", [""], [0.5]),
]


def written(tmp_path, content, name="lists.json"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def rows(*cells):
    return "".join("\t".join(row) + "\n" for row in cells)


def test_json_lists_are_read_in_the_order_of_the_file_and_of_the_numbers(tmp_path):
    assert read_lists(written(tmp_path, GOOD)) == EXPECTED


def test_columns_hold_the_same_with_references_in_the_file_or_beside(tmp_path):
    cells = [(u.name, str(s), h) for u in EXPECTED for s, h in zip(u.scores, u.hypotheses)]
    with_references = [(*row, {u.name: u.reference for u in EXPECTED}[row[0]]) for row in cells]
    assert read_lists(written(tmp_path, rows(*with_references), "four.tsv")) == EXPECTED
    lists = written(tmp_path, rows(*cells).replace("\n", "\r\n") + "\n", "three.tsv")
    references = written(tmp_path, rows(("a-2", "d"), ("b-1", "a b c")), "references.tsv")
    assert read_lists(lists, references) == EXPECTED


def changed(**fields):
    """A list of one utterance with other fields; None removes one."""
    entry = {"ref": "a", "hyp_1": {"score": -1, "text": "a"}} | fields
    return {"u-7": {name: value for name, value in entry.items() if value is not None}}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (changed(ref=None), "'u-7'"),
        (changed(ref=7), "`ref`"),
        (changed(hyp_1=None), "no hypotheses"),
        (changed(hyp_1={"score": float("nan"), "text": "a"}), "`hyp_1`"),
        (changed(hyp_1={"score": float("-inf"), "text": "a"}), "`hyp_1`"),
        (changed(hyp_1={"score": None, "text": "a"}), "`hyp_1`"),
        (changed(hyp_1={"score": True, "text": "a"}), "`hyp_1`"),
        (changed(hyp_1={"score": 10**400, "text": "a"}), "`hyp_1`"),
        (changed(hyp_1={"text": "a"}), "`hyp_1`"),
        (changed(hyp_1={"score": 1}), "`hyp_1`"),
        (changed(hyp_1=["a"]), "`hyp_1`"),
        (changed(hyp1={"score": 1, "text": "a"}), "'hyp1'"),
        (changed(hyp_2={"score": 1, "text": "a\ud800"}), "`hyp_2`"),
        (changed(ref="a\ud800"), "`ref`"),
        (changed(**{"hyp_" + "1" * 5000: {"score": 1, "text": "a"}}), "'hyp_111"),
        ('{"u-7": {"ref": "a", "hyp_1": {"score": 1, "text": "a"}}, "u-7": {}}', "'u-7'"),
        ('{"u-7": {"ref": "a", "ref": "b"}}', "`ref`"),
        ({"u-7": []}, "'u-7'"),
    ],
)
def test_bad_json_lists_are_named_with_their_utterance(tmp_path, content, named):
    path = written(tmp_path, content)
    with pytest.raises(InputError) as raised:
        read_lists(path)
    assert path in str(raised.value)
    assert named in str(raised.value)
    assert "'u-7'" in str(raised.value)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (changed(ref=" "), "at least one word"),
        ({}, "at least one utterance"),
        ([], "JSON object"),
        ('{"u-7": {\n"ref": }', "line 2"),
        ("[" * 100_000, "brackets"),
        ('{"u-7": {"hyp_1": {"score": ' + "1" * 5000 + "}}}", "digits"),
    ],
)
def test_files_without_lists_are_named(tmp_path, content, named):
    path = written(tmp_path, content)
    with pytest.raises(InputError) as raised:
        read_lists(path)
    assert path in str(raised.value)
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("lists", "references", "named"),
    [
        ("u\t1\ta", None, "'u' has no reference"),
        ("u\t1\ta\tr\nv\t1\ta\tr\nu\t2\tb\tr", None, "line 3: utterance 'u'"),
        ("u\t1\ta\tr\nu\t1\ta\ts", None, "line 2: utterance 'u'"),
        ("u\t1\ta\tr\nu\t1\ta\ts", None, "'r', then 's'"),
        ("u\tnan\ta\tr", None, "line 1: utterance 'u'"),
        ("utterance\tscore\ttext\tref", None, "line 1"),
        ("u\t1", None, "line 1"),
        ("u\t1\ta\tr\tmore", None, "line 1"),
        ("", None, "at least one"),
        ("u\t1\ta", "v\tr", "'u' has no reference"),
        ("u\t1\ta", "u\tr\nv\tr", "'v' has no hypotheses"),
        ("u\t1\ta", "u\tr\nu\tr", "line 2: utterance 'u'"),
        ("u\t1\ta\tr", "u\tr", "'u' has a reference"),
    ],
)
def test_bad_columns_are_named_with_their_utterance(tmp_path, lists, references, named):
    paths = [written(tmp_path, lists, "lists.tsv")]
    if references is not None:
        paths.append(written(tmp_path, references, "references.tsv"))
    with pytest.raises(InputError) as raised:
        read_lists(*paths)
    assert named in str(raised.value)
    assert any(path in str(raised.value) for path in paths)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "latin.tsv").write_bytes("u\t1\té\té\n".encode("latin-1"))
    for path in (tmp_path / "none.json", tmp_path / "latin.tsv"):
        with pytest.raises(InputError, match=path.name):
            read_lists(str(path))
    with pytest.raises(InputError, match="`ref`"):
        read_lists(written(tmp_path, GOOD), written(tmp_path, "b-1\tr", "references.tsv"))
