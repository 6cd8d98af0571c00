import json

import pytest

from errors import InputError
from finetune import glue
from finetune.catalogue import load_task, load_tasks
from finetune.declaration import parse
from finetune.kinds.texts import TextExample
from finetune.task_files import has_split, read_split, resolve_labels, source_of

CSV = 'stars,review,title\n5,"good, really","A ""find"""\n1,"bad\nand long",no\n'


@pytest.fixture
def reviews(tmp_path):
    """The folder of a user's own task, and its declaration."""
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.csv").write_text(CSV, encoding="utf-8")
    declaration = {
        "name": "reviews",
        "kind": "classification",
        "files": {split: f"{split}.csv" for split in ("train", "dev", "test")},
        "columns": {"text_a": "review", "label": "stars"},
        "labels": [1, 5],
        "metrics": ["accuracy", "f1"],
    }
    return tmp_path, declaration


def load(folder, declaration):
    path = folder / "reviews.json"
    path.write_text(json.dumps(declaration), encoding="utf-8")
    return load_task(str(path))


def test_built_in_tasks_by_either_spelling():
    assert list(glue.TASKS) == [
        *("cola", "sst", "mrpc", "sts", "qqp", "mnli", "qnli", "rte", "wnli"),
        *("squad", "squadv1", "pos", "race", "race_middle", "race_high", "ptb"),
    ]
    assert tuple(glue.TASKS)[:8] == glue.GLUE_TASKS
    for spelling, name in {"CoLA": "cola", "SST-2": "sst", "sts-b": "sts", "MNLI": "mnli"}.items():
        assert load_task(spelling) is glue.TASKS[name]
    assert all(name in glue.TASKS for name in glue.ALIASES.values())


def test_built_in_tasks_have_metrics_that_exist():
    for task in glue.TASKS.values():
        task.plugin.check_metrics(task)
    mains = {name: task.metrics[0] for name, task in glue.TASKS.items()}
    assert mains["cola"] == "matthews_corrcoef"
    assert mains["sts"] == "spearman"
    assert {mains[name] for name in ("sst", "mrpc", "qqp", "mnli", "qnli", "rte")} == {"accuracy"}
    assert [name for name, task in glue.TASKS.items() if task.symmetric] == ["mrpc", "sts"]


@pytest.mark.parametrize("name", glue.TASKS)
def test_tasks_survive_json(name):
    task = glue.TASKS[name]
    assert parse(json.loads(json.dumps(task.to_json())), "task") == task


def test_own_task(reviews):
    folder, declaration = reviews
    task = load(folder, declaration)
    assert (task.dev, task.test, task.labels) == (("dev",), ("test",), ("1", "5"))
    expected = [
        TextExample("0", "good, really", None, 1),
        TextExample("1", "bad\nand long", None, 0),
    ]
    assert read_split(task, "", "train") == expected  # beside the declaration
    assert parse(json.loads(json.dumps(task.to_json())), "task") == task
    assert read_split(parse(task.to_json(), "task"), "", "dev") == expected


def test_what_a_declaration_may_leave_out(reviews):
    folder, declaration = reviews
    for key in ("name", "labels", "metrics"):
        del declaration[key]
    declaration["files"] = {"train": "train.csv", "validation": "dev.csv"}
    task = load(folder, declaration)
    assert (task.name, task.format, task.metrics) == ("reviews", "csv", ("accuracy",))
    assert (task.dev, task.test, task.labels) == (("validation",), (), ())
    resolved = resolve_labels(task, "")
    assert resolved.labels == ("1", "5")
    assert [e.label for e in read_split(resolved, "", "validation")] == [1, 0]


def test_a_split_is_what_the_declaration_says_whatever_its_name(reviews):
    """CoNLL's testa and testb are often both development splits."""
    folder, declaration = reviews
    declaration["files"] |= {"testb": "test.csv"}
    task = load(folder, {**declaration, "dev": ["dev", "testb"]})
    assert (task.dev, task.test) == (("dev", "testb"), ("test",))
    files = {"testb": "train.csv", "val": "dev.csv", "dev": "dev.csv", "test": "test.csv"}
    said = {"files": files, "train": "testb", "test": ["dev", "test"]}
    task = load(folder, declaration | said)
    assert (task.train, task.dev, task.test) == ("testb", ("val",), ("dev", "test"))


def test_collected_labels_are_in_the_order_of_numbers(reviews):
    folder, declaration = reviews
    del declaration["labels"]
    rows = "".join(f"{label},text,t\n" for label in ("10", "b", "9", "aa", "10"))
    (folder / "train.csv").write_text("stars,review,title\n" + rows, encoding="utf-8")
    task = load(folder, declaration)
    assert resolve_labels(task, "").labels == ("9", "10", "aa", "b")
    assert resolve_labels(glue.TASKS["sts"], "nowhere") is glue.TASKS["sts"]


def test_of_many_collected_labels_the_first_are_listed(reviews, capsys):
    folder, declaration = reviews
    del declaration["labels"]
    rows = "".join(f"{label},text,t\n" for label in range(300))
    (folder / "train.csv").write_text("stars,review,title\n" + rows, encoding="utf-8")
    assert len(resolve_labels(load(folder, declaration), "").labels) == 300
    said = capsys.readouterr().err
    assert "'39'" in said
    assert "'40'" not in said
    assert "260" in said


def test_data_dir_comes_before_the_folder_of_the_declaration(reviews):
    folder, declaration = reviews
    task = load(folder, declaration)
    other = folder / "other"
    other.mkdir()
    (other / "dev.csv").write_text("review,stars\nfine,5\n", encoding="utf-8")
    assert [e.text_a for e in read_split(task, str(other), "dev")] == ["fine"]
    assert source_of(task, str(other), "train").path == str(folder / "train.csv")
    assert has_split(task, str(other), "test")
    (folder / "test.csv").unlink()
    assert not has_split(task, str(other), "test")


def test_official_folders_and_flat_ones(tmp_path):
    task = load_task("mnli")
    for place in ("dev_matched.tsv", "MNLI/dev_matched.tsv", "AX/diagnostic.tsv"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    assert source_of(task, str(tmp_path), "dev_matched").path.endswith("MNLI/dev_matched.tsv")
    assert source_of(task, str(tmp_path / "MNLI"), "dev_matched").path.endswith(
        "MNLI/dev_matched.tsv"
    )
    assert source_of(task, str(tmp_path), "diagnostic").path.endswith("AX/diagnostic.tsv")
    (tmp_path / "MNLI/diagnostic").mkdir()
    (tmp_path / "MNLI/diagnostic/diagnostic.tsv").touch()
    assert source_of(task, str(tmp_path), "diagnostic").path.endswith("diagnostic/diagnostic.tsv")
    assert not has_split(task, str(tmp_path), "test_matched")


def test_a_pattern_that_matches_two_files(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"{language}-ud-train.conllu").touch()
    with pytest.raises(InputError):
        source_of(load_task("pos"), str(tmp_path), "train")


@pytest.mark.parametrize(
    ("name", "named"), [("mrcp", "`mrpc`"), ("no.json", "no.json"), (".", ".")]
)
def test_a_task_that_does_not_exist(name, named):
    with pytest.raises(InputError, match=named):
        load_task(name)


def test_a_task_without_a_name_has_the_files_or_the_folders(reviews):
    folder, declaration = reviews
    del declaration["name"]
    assert load(folder, declaration).name == "reviews"
    (folder / ".json").write_text(json.dumps(declaration))
    assert load_task(str(folder / ".json")).name == folder.name


def test_two_tasks_of_one_name(reviews):
    """Their results would be in one folder."""
    folder, declaration = reviews
    paths = [folder / "reviews.json", folder / "other.json"]
    for path in paths:
        path.write_text(json.dumps({**declaration, "labels": [path.stem, "b"]}))
    paths = list(map(str, paths))
    assert len(load_tasks([paths[0], "cola", paths[0]])) == 3
    with pytest.raises(InputError):
        load_tasks(paths)


@pytest.mark.parametrize(
    ("changes", "content"),
    [
        ({"delimiter": ";"}, "stars;review\n5;fine film\n1;no\n"),
        ({"delimiter": "|", "format": "tsv"}, 'stars|review\n5|fine film\n1|"no\n'),
        (
            {"delimiter": ";", "header": False, "columns": {"text_a": 1, "label": 0}},
            "5;fine film\n1;no\n",
        ),
    ],
)
def test_a_declared_delimiter(reviews, changes, content):
    folder, declaration = reviews
    (folder / "train.csv").write_text(content)
    task = load(folder, declaration | changes)
    first, second = read_split(task, "", "train")
    assert (first.text_a, first.label, second.label) == ("fine film", 1, 0)
    assert parse(json.loads(json.dumps(task.to_json())), "task") == task


PAIRS = {"text_a": 0, "text_b": 1, "label": 2}
TAGGING = {"kind": "tagging", "columns": {"words": 0, "tags": 1}, "labels": []}
# What the error names -> changes of a declaration, of which ... removes the key.
MISTAKES = {
    "'colums'": [{"colums": {}}],
    "'kind'": [{"kind": ...}],
    "`kind`": [{"kind": "clasification"}, {"kind": 3}],
    "'files'": [{"files": ...}],
    "`files": [
        {"files": None},
        {"files": {}},
        {"files": {"train": "a.csv"}},
    ],
    "`files`.* x": [{"format": "csv", "files": {"train": "a", "dev": "b", "x": "c"}}],
    "`splits`": [{"dev": ["train"]}],
    "`format`": [
        {"format": "conll"},
        {"files": {"train": "a.csv", "dev": "dev.tsv"}},
        {"files": {"train": "a.json", "dev": "b.json"}},
        {"files": {"train": "a.csv.gz", "dev": "b.csv"}},
        TAGGING,
    ],
    r"`label` \(split 'train'\)": [{"columns": {"text_a": "review"}}],
    "`columns": [
        {"columns": {"text_a": 1.5, "label": 0}},
        {"columns": {"text_a": 0, "label": 1, "words": 2}},
        {"columns": {"text_a": "review", "label": "review"}},
    ],
    "`labels`?": [
        {"labels": ["a", "a"]},
        {"labels": ["a"]},
        {"labels": "ab"},
        {"labels": ["a", None]},
    ],
    "`metrics`": [{"metrics": ["acuracy"]}, {"metrics": []}],
    "`labels`": [{"kind": "regression", "metrics": ["pearson"]}],
    "`symmetric`": [
        {"symmetric": "yes"},
        {"symmetric": True},
        {"symmetric": True, "columns": PAIRS}
        | {"per_split": {"train": {"columns": {"text_a": 0, "label": 1}}}},
        {"symmetric": True, "format": "conll", "metrics": ["token_accuracy"], **TAGGING},
        {"symmetric": True, "kind": "span", "format": "squad", "metrics": ["f1"], "labels": []},
    ],
    "`label_range`": [{"label_range": [0]}, {"label_range": [5, 0]}],
    r"`per_split\['dev'\]": [{"per_split": {"dev": {"colums": {}}}}],
    "`name`": [{"name": name} for name in ("a/b", "..", "a\nb", "", None)],
    "`delimiter`": [
        *({"delimiter": delimiter} for delimiter in (";;", '"', "\n", 3)),
        {"delimiter": ";", "files": {"train": "train.jsonl", "dev": "dev.jsonl"}},
    ],
    "`tfds`.*train.csv": [{"format": "tfds"}],
}


@pytest.mark.parametrize(
    ("named", "changes"),
    [(named, changes) for named, several in MISTAKES.items() for changes in several],
)
def test_mistakes_in_a_declaration(reviews, named, changes):
    folder, declaration = reviews
    declared = {key: value for key, value in (declaration | changes).items() if value is not ...}
    with pytest.raises(InputError, match=f"(?s)^{folder}/reviews.json: .*{named}"):
        load(folder, declared)


@pytest.mark.parametrize(
    ("data_dir", "split", "named"),
    [
        ("", "dve", "`dev`"),
        ("", "train", "--data_dir.*cola"),
        ("nowhere", "train", "train.tsv.*nowhere/CoLA"),
        (".", "train", "train.tsv"),
        ("tfdss:", "dev", "tfdss:"),
    ],
)
def test_splits_that_are_not_there(tmp_path, monkeypatch, data_dir, split, named):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=named):
        read_split(load_task("cola"), data_dir, split)


@pytest.mark.parametrize("name", ["nowhere", "reviews.json"])
def test_a_data_dir_that_is_none(reviews, name):
    """It was passed over where the files lie beside the declaration."""
    folder, declaration = reviews
    task = load(folder, declaration)
    with pytest.raises(InputError, match=f"{name}: --data_dir"):
        read_split(task, str(folder / name), "train")
