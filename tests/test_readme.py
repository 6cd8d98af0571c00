"""The README says what is there: its commands run, its flags are the code's."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from tests.command_support import run as forked

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAMS = ("build_pretraining_data.py", "run_pretraining.py", "run_finetuning.py")
PROGRAMS += ("analysis.learned", "checkpoints.convert", "export_savedmodel.py", "serving.predict")
COMMANDS = [shlex.split(line) for line in README.splitlines() if re.match(r"\s+python ", line)]
# A model that trains in seconds; the recipe's other settings stay.
TINY = {
    "model_size": "convbert-tiny",
    "vocab_size": None,
    "model_hparam_overrides": {
        "hidden_size": 32,
        "embedding_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    },
    "train_batch_size": 2,
    "generator_hidden_size": 0.5,
    "num_eval_steps": 2,
}


def program_of(command):
    """The script or module that a command line `python [-m] PROGRAM ...` runs."""
    return command[2] if command[1] == "-m" else command[1]


@pytest.mark.slow  # needs four minutes on two cores: every command of the README is a process
def test_the_commands_run_one_after_the_other(tmp_path):
    """In the order of the README, on a small text, with a small model."""
    (tmp_path / "my_text").mkdir()
    documents = (
        f"the {i}th document says {i * i} times that words recur .\n" * 9 for i in range(99)
    )
    (tmp_path / "my_text" / "a.txt").write_text("\n".join(documents))
    write_tasks(tmp_path)
    steps, ran = 4, []
    for command in COMMANDS:
        program = program_of(command)
        if program not in PROGRAMS:
            continue
        changes = []
        if program == "build_pretraining_data.py":
            changes = ["--heldout_fraction=0.2"]
            if "--vocab_size" in command:
                changes.append("--vocab_size=120")
        elif program == "run_pretraining.py":
            hparams = {**TINY, "num_train_steps": steps, "num_warmup_steps": 1}
            if "--additional_steps" in command:
                hparams = {name: hparams[name] for name in ("train_batch_size", "num_eval_steps")}
                hparams["num_warmup_steps"] = 1
                changes = ["--additional_steps=2"]
            elif "--continue_from" in command:
                hparams["num_train_steps"] = steps + 2
            if "--hparams" in command:  # the one in the README has to be understood too
                given = json.loads(command[command.index("--hparams") + 1])
                hparams = {**given, **hparams}
            changes.append(f"--hparams={json.dumps(hparams)}")
        elif program == "run_finetuning.py":
            changes = ["--num_trials=1", '--hparams={"num_train_epochs": 1, "max_seq_length": 24}']
        arguments = [re.sub(r"^my_", f"{tmp_path}/my_", word) for word in command[1:]]
        done = (forked if program in ran else started)(*arguments, *changes)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        ran.append(program)
    assert ran.count("build_pretraining_data.py") == 2
    assert ran.count("run_pretraining.py") == 4
    assert ran.count("run_finetuning.py") == 2
    assert ran.count("checkpoints.convert") == 4
    answers = (tmp_path / "my_answers.jsonl").read_text().splitlines()
    assert {json.loads(answer)["prediction"] for answer in answers} <= {"good", "bad"}
    assert len(answers) == 40
    assert ran[-1] == "analysis.learned"
    for report in ("my_results/report.md", "my_data/models/mine/finetuning/report.md"):
        assert "dev" in (tmp_path / report).read_text()
    for name in ("my_data/models/mine", "my_data/models/quick", "my_data_512/models/mine_512"):
        assert (tmp_path / name / "checkpoints" / "checkpoint").exists()


def started(*arguments):
    """By an interpreter of its own, as a reader does it: each program's first command."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def write_tasks(folder):
    """The README's own task, with its declaration as written there, and two of GLUE's."""
    (folder / "my_task").mkdir()
    declaration = README.split("write `my_task/task.json`:")[1].split("and run")[0]
    (folder / "my_task" / "task.json").write_text(json.dumps(json.loads(declaration)))
    sentences = [f"the {i}th document says {i * i} times" for i in range(40)]
    for split in ("train", "dev"):
        rows = [f"{text},{'good' if i % 3 else 'bad'}" for i, text in enumerate(sentences)]
        (folder / "my_task" / f"{split}.csv").write_text("\n".join(["review,verdict", *rows]))
        cola = [f"a\t{i % 2}\t\t{text}" for i, text in enumerate(sentences)]
        rte = [f"{i}\t{text}\t{text}\tentailment" for i, text in enumerate(sentences)]
        rte[0] = rte[0].replace("entailment", "not_entailment")
        for name, lines in (("CoLA", cola), ("RTE", ["index\tsentence1\tsentence2\tlabel", *rte])):
            path = folder / "my_glue" / name / f"{split}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines))


def test_every_command_is_known():
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        program = program_of(command)
        assert (ROOT / program).exists() or (ROOT / (program.replace(".", "/") + ".py")).exists()


@pytest.mark.parametrize(
    ("program", "least"),
    [
        ("build_pretraining_data.py", 10),
        ("run_pretraining.py", 10),
        ("run_finetuning.py", 10),
        ("export_savedmodel.py", 4),
    ],
)
def test_every_flag_is_described(program, least):
    section = README.split(f"`{program}`\n\n| flag")[1].split("\n\n")[0]
    described = set(re.findall(r"`--(\w+)`", section))
    source = (ROOT / program).read_text(encoding="utf-8")
    defined = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source))
    assert described == defined
    assert len(defined) >= least


def test_links_and_files_exist():
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
    for target in re.findall(
        r"`((?:configs|docs|model|pretrain|finetune|training|data)/[\w./]+)`", README
    ):
        assert (ROOT / target).exists(), target


def test_no_function_of_the_project_uses_the_other_keras():
    """Keras 3 variables go missing beside tf_keras without an error."""
    for folder, _, names in os.walk(ROOT):
        if any(part.startswith(".") or part == "runs" for part in pathlib.Path(folder).parts[1:]):
            continue
        for name in names:
            if name.endswith(".py") and name != "test_readme.py":
                text = (pathlib.Path(folder) / name).read_text(encoding="utf-8")
                assert not re.search(r"\btf\.keras\b|^import keras|from keras", text, re.M), name
