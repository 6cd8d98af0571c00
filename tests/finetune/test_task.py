import json

import pytest

from errors import InputError
from finetune import glue
from finetune.catalogue import load_task
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
        "format": "csv",
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
        *("squad", "squadv1", "pos"),
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
    for key in ("name", "format", "labels", "metrics"):
        del declaration[key]
    declaration["files"] = {"train": "train.csv", "validation": "dev.csv"}
    task = load(folder, declaration)
    assert (task.name, task.format, task.metrics) == ("reviews", "csv", ("accuracy",))
    assert (task.dev, task.test, task.labels) == (("validation",), (), ())
    resolved = resolve_labels(task, "")
    assert resolved.labels == ("1", "5")
    assert [e.label for e in read_split(resolved, "", "validation")] == [1, 0]
    with pytest.raises(InputError, match="labels before examples are read"):
        read_split(task, "", "train")


def test_collected_labels_are_in_the_order_of_numbers(reviews):
    folder, declaration = reviews
    del declaration["labels"]
    rows = "".join(f"{label},text,t\n" for label in ("10", "b", "9", "aa", "10"))
    (folder / "train.csv").write_text("stars,review,title\n" + rows, encoding="utf-8")
    task = load(folder, declaration)
    assert resolve_labels(task, "").labels == ("9", "10", "aa", "b")
    (folder / "train.csv").write_text("stars,review,title\n1,text,t\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"train\.csv.*at least two labels"):
        resolve_labels(task, "")
    (folder / "train.csv").write_text("stars,review,title\n,text,t\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 2: the label should not be empty"):
        resolve_labels(task, "")
    assert resolve_labels(glue.TASKS["sts"], "nowhere") is glue.TASKS["sts"]


def test_of_many_collected_labels_the_first_are_listed(reviews, capsys):
    folder, declaration = reviews
    del declaration["labels"]
    rows = "".join(f"{label},text,t\n" for label in range(300))
    (folder / "train.csv").write_text("stars,review,title\n" + rows, encoding="utf-8")
    assert len(resolve_labels(load(folder, declaration), "").labels) == 300
    said = capsys.readouterr().err
    assert said.endswith(" 38 1, 39 1, ... and 260 more\n")


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
    with pytest.raises(InputError, match=r"one file\. Received: de-ud.*, en-ud-train"):
        source_of(load_task("pos"), str(tmp_path), "train")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mrcp", r"one of cola, sst.*JSON file.*\(did you mean mrpc\?\). Received: 'mrcp'"),
        ("nonsense123", r"declares a task. Received: 'nonsense123'"),
        ("missing.json", "missing.json: cannot be read"),
    ],
)
def test_a_task_that_does_not_exist(name, message):
    with pytest.raises(InputError, match=message):
        load_task(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colums": {}}, r"did you mean 'columns'\?\). Received: 'colums'"),
        ({"kind": "clasification"}, "`kind` should be one of .* Received: 'clasification'"),
        ({"kind": 3}, "`kind` should be a text that is not empty. Received: 3"),
        ({"files": None}, "`files` should be a JSON object. Received: None"),
        ({"files": {}}, "name the file of the split 'train'. Received: no files"),
        ({"files": {"train": ""}}, "`files`, 'train', should be a text"),
        ({"files": {"train": "a.csv"}}, "should have a development split.*Received: train"),
        ({"files": {"train": "a", "dev": "b", "x": "c"}}, "listed under.*Received: x"),
        ({"dev": ["train"]}, "named once. Received: train, train, test"),
        ({"format": "conll"}, "`format` of a classification task should be one of tsv"),
        ({"columns": {"text_a": "review"}}, r"which column holds `label` \(split 'train'\)"),
        ({"columns": {"text_a": 1.5, "label": 0}}, "'text_a', should be the name .* Received: 1.5"),
        ({"columns": {"text_a": 0, "label": 1, "words": 2}}, "may hold text_a.*Received: 'words'"),
        ({"labels": ["a", "a"]}, "distinct. Received: a, a"),
        ({"labels": ["a"]}, "at least two. Received: 'a'"),
        ({"labels": "ab"}, "`labels` should be a list of label names. Received: 'ab'"),
        ({"labels": ["a", None]}, "`labels`, each, should be a text.*Received: None"),
        ({"metrics": ["acuracy"]}, "accuracy.*Received: 'acuracy'"),
        ({"metrics": []}, "at least one score"),
        ({"symmetric": "yes"}, "`symmetric` should be true or false. Received: 'yes'"),
        ({"symmetric": True}, "`symmetric` .*pairs.* classification task .* text_a, label"),
        (
            {
                "symmetric": True,
                "columns": {"text_a": 0, "text_b": 1, "label": 2},
                "per_split": {"train": {"columns": {"text_a": 0, "label": 1}}},
            },
            "`symmetric` .*pairs.* classification task with the columns text_a, label",
        ),
        (
            {"symmetric": True, "kind": "tagging", "format": "conll"}
            | {"columns": {"words": 0, "tags": 1}, "metrics": ["token_accuracy"]},
            "`symmetric` .*pairs.* tagging task",
        ),
        (
            {"symmetric": True, "kind": "span", "format": "squad", "metrics": ["f1"]},
            "`symmetric` .*pairs.* span task",
        ),
        ({"label_range": [0]}, r"`label_range` should be two numbers.*Received: \[0\]"),
        ({"label_range": [5, 0]}, r"should be \[low, high\]. Received: \[5.0, 0.0\]"),
        ({"per_split": {"dev": {"colums": {}}}}, "`per_split`, 'dev', should be an object"),
        ({"name": "a/b"}, "folder's name. Received: 'a/b'"),
    ],
)
def test_mistakes_in_a_declaration(reviews, changes, message):
    folder, declaration = reviews
    with pytest.raises(InputError, match=message) as caught:
        load(folder, declaration | changes)
    assert str(caught.value).startswith(f"{folder}/reviews.json: ")


@pytest.mark.parametrize("key", ["kind", "files"])
def test_a_declaration_without_what_it_needs(reviews, key):
    folder, declaration = reviews
    del declaration[key]
    with pytest.raises(InputError, match=f"should have the key '{key}'"):
        load(folder, declaration)


@pytest.mark.parametrize(
    ("data_dir", "split", "message"),
    [
        ("", "dve", r"has the splits train, dev, test \(did you mean dev\?\). Received: 'dve'"),
        ("", "train", "--data_dir is missing.*of task cola"),
        ("nowhere", "train", "train.tsv: the train split.*nowhere/CoLA.*Received: no such folder"),
        (".", "train", r"Received: . with .*other.txt"),
        ("tfdss:", "dev", "Received: no such folder"),
    ],
)
def test_splits_that_are_not_there(tmp_path, monkeypatch, data_dir, split, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").touch()
    with pytest.raises(InputError, match=message):
        read_split(load_task("cola"), data_dir, split)
