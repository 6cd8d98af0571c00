"""Files of the Penn Treebank and of Brown: words, tags, sentences, splits."""

import pytest

from errors import InputError
from finetune.catalogue import load_task
from finetune.readers.treebank import files_of, read_brown, read_treebank
from finetune.task_files import read_split, resolve_labels

POS = """*x*x*x*x*x*
======================================

[ The/DT fund/NN ]
rose/VBD 3\\/4/CD ,/,
[ targeting/VBG|NN equipment/NN ]

[ that/WDT ]
sells/VBZ (/( US$/$ )/) ./.

''/''

``/`` No/DT ./. ''/''
[ Next/JJ ]
======================================
[ A/DT heading/NN ]
"""
MRG = """
( (S (NP-SBJ-1 (DT The) (NN fund) )
     (VP (VBD rose)
       (NP (-NONE- *T*-1) (CD 3\\/4) (-LRB- -LRB-) (NN|VBG x) (-RRB- -RCB-) ))
     (. .) ))
( (NP (NN heading)))
"""


def sentences(rows):
    return [
        " ".join(f"{word}_{tag}" for word, tag in zip(row["words"], row["tags"])) for _, row in rows
    ]


def test_pos_files(tmp_path):
    (tmp_path / "a.pos").write_text(POS)
    rows = list(read_treebank(str(tmp_path / "a.pos")))
    assert sentences(rows) == [
        "The_DT fund_NN rose_VBD 3/4_CD ,_, targeting_VBG equipment_NN that_WDT sells_VBZ (_( "
        "US$_$ )_) ._. ''_''",
        "``_`` No_DT ._. ''_'' Next_JJ",
        "A_DT heading_NN",
    ]
    assert rows[0][1]["tag_places"][3] == f"{tmp_path / 'a.pos'}, line 5"


def test_mrg_files(tmp_path):
    (tmp_path / "a.mrg").write_text(MRG)
    assert sentences(read_treebank(str(tmp_path / "a.mrg"))) == [
        "The_DT fund_NN rose_VBD 3/4_CD (_-LRB- x_NN }_-RRB- ._.",
        "heading_NN",
    ]


def test_brown_files(tmp_path):
    (tmp_path / "ca01").write_text("\n\tThe/at said/vbd 1\\/2/cd and//cc\n\n\n./.\n")
    found = sentences(read_brown(str(tmp_path / "ca01")))
    assert found == ["The_at said_vbd 1\\/2_cd and/_cc", "._."]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("b.pos", "[ The/DT fund ]\n"),
        ("b.mrg", "( (S (NN a))"),
        ("b.mrg", "( (NN a)) )"),
        ("b.mrg", "NN a"),
    ],
)
def test_files_that_are_not_whole(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError):
        list(read_treebank(str(tmp_path / name)))


def test_splits_are_lists_and_sections(tmp_path):
    wsj = tmp_path / "wsj"
    for number in range(25):
        folder = wsj / f"{number:02}" if number % 2 else wsj
        folder.mkdir(parents=True, exist_ok=True)
        text = f"[ word{number}/NN ] ./.\n"
        (folder / f"wsj_{number:02}07.pos").write_text(text)
    task = load_task("ptb")
    for place in (tmp_path, wsj):
        labelled = resolve_labels(task, str(place))
        assert labelled.labels == (".", "NN")
        for split, numbers in zip(task.splits, (range(19), range(19, 22), range(22, 25))):
            found = read_split(labelled, str(place), split)
            assert [x.words for x in found] == [(f"word{number}", ".") for number in numbers]

    own = tmp_path / "own"
    own.mkdir()
    (own / "train.files").write_text("# mine\n../wsj/wsj_00*.pos\n../wsj/01/wsj_0107.pos\n")
    (own / "dev.files").write_text("../wsj/wsj_0207.pos\n")
    labelled = resolve_labels(task, str(own))
    assert [x.words[0] for x in read_split(labelled, str(own), "train")] == ["word0", "word1"]
    (own / "dev.files").write_text("\nnothing.pos\n")
    with pytest.raises(InputError):
        read_split(labelled, str(own), "dev")
    (wsj / "03" / "wsj_0307.pos").unlink()
    with pytest.raises(InputError):
        files_of(str(wsj) + "@00-18")
    (wsj / "03" / "wsj_0307.mrg").write_text("( (NN a))")
    with pytest.raises(InputError):
        files_of(str(wsj) + "@00-18")
