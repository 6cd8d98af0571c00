"""The documents say what is there: their commands run, their flags are the code's."""

import json
import re
import shlex
import textwrap

import pytest

from convbert.__main__ import COMMANDS
from tests.command_support import ROOT, python
from tests.command_support import run as forked
from tests.pretraining_support import WIDTHS

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = ("build_pretraining_data.py", "run_pretraining.py", "run_finetuning.py")
SCRIPTS += ("run_experiment.py", "export_savedmodel.py")
# Where each program's flags are described: a document, and the line before the table.
FLAGS = {name: ("reference.md", f"`{name}`") for name in SCRIPTS}
FLAGS |= {"serving/evaluate.py": ("reference.md", "`convbert evaluate`")}
FLAGS |= {"serving/predict.py": ("serving.md", "## The client")}
FLAGS |= {"serving/scoring/rescore.py": ("serving.md", "### Rescoring n-best lists")}
FLAGS["serving/scoring/perplexity.py"] = ("guide.md", "`convbert perplexity` measures.*")
LEARNED = "convbert.examples.quickstart.learned"
PROGRAMS = ("build-data", "pretrain", "finetune", "export", "predict", "convert", LEARNED)


def commands(document):
    """The command lines that a document shows, each as a list of words."""
    lines = document.replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if re.match(r"\s+(python|convbert) ", line)]


# Models that train in seconds; the recipe's other settings stay.
TINY = {"model_size": "convbert-tiny", "vocab_size": None, "train_batch_size": 2}
TINY |= {"generator_hidden_size": 0.5, "num_eval_steps": 2}
TINY["model_hparam_overrides"] = {**WIDTHS, "embedding_size": 16}
TINY_XLNET = {**TINY, "model_size": "xlnet-tiny", "model_hparam_overrides": WIDTHS}


def program_of(command):
    """The program of `convbert PROGRAM ...` or `python [-m] PROGRAM ...`."""
    return command[2] if command[1] == "-m" else command[1]


@pytest.mark.slow  # needs six minutes on two cores: every command is a process
@pytest.mark.parametrize("name", ["README.md", "docs/guide.md"])
def test_the_commands_run_one_after_the_other(name, tmp_path):
    """In the order of the document, on a small text, with a small model."""
    document = (ROOT / name).read_text(encoding="utf-8")
    (tmp_path / "my_text").mkdir()
    line = "the {}th document says {} times that words recur .\n"
    documents = (line.format(i, i * i) * 9 for i in range(99))
    (tmp_path / "my_text" / "a.txt").write_text("\n".join(documents))
    write_tasks(tmp_path)
    ran = []
    for command in commands(document):
        program = program_of(command)
        if program not in PROGRAMS or not any(word.startswith("my_") for word in command):
            continue
        words = ["-m", *command] if command[0] == "convbert" else command[1:]
        arguments = [re.sub(r"^my_", f"{tmp_path}/my_", word) for word in words]
        changes = smaller(program, command)
        done = (forked if program in ran else python)(*arguments, *changes)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        ran.append(program)
    assert set(ran) >= set(PROGRAMS) - {LEARNED}
    answers = (tmp_path / "my_answers.jsonl").read_text().splitlines()
    assert {json.loads(answer)["prediction"] for answer in answers} <= {"good", "bad"}
    assert len(answers) == 40
    assert "dev" in (tmp_path / "my_results/report.md").read_text()
    found = {path.parts[-3] for path in tmp_path.glob("*/models/*/checkpoints/checkpoint")}
    named = re.findall(r"--data_dir my_\S+ --model_name (\S+)", document)
    assert found == set(named)


def smaller(program, command):
    """Flags that make a command of the documents end in seconds."""
    if program == "build-data":
        return ["--heldout_fraction=0.2", *["--vocab_size=120"] * ("--vocab" not in command)]
    if program == "finetune":
        return ["--num_trials=1", '--hparams={"num_train_epochs": 1, "max_seq_length": 24}']
    if program != "pretrain":
        return []
    tiny = TINY_XLNET if "configs/xlnet_tiny.json" in command else TINY
    hparams, flags = {**tiny, "num_train_steps": 4, "num_warmup_steps": 1}, []
    if "--additional_steps" in command:
        hparams = {name: hparams[name] for name in ("train_batch_size", "num_eval_steps")}
        hparams["num_warmup_steps"] = 1
        flags = ["--additional_steps=2"]
    elif "--continue_from" in command:
        hparams["num_train_steps"] = 6
    if "--hparams" in command:  # the one in the document has to be understood too
        given = json.loads(command[command.index("--hparams") + 1])
        hparams = {**given, **hparams}
        hparams |= {"num_decay_steps": 2} if "num_decay_steps" in given else {}
        if given.get("objective") == "causal_lm":
            hparams["model_hparam_overrides"] = {**TINY["model_hparam_overrides"], "causal": True}
    return [*flags, f"--hparams={json.dumps(hparams)}"]


def write_tasks(folder):
    """The guide's own task, with its declaration as written there, and two of GLUE's."""
    (folder / "my_task").mkdir()
    declaration = GUIDE.split("write `my_task/task.json`:")[1].split("and run")[0]
    (folder / "my_task" / "task.json").write_text(json.dumps(json.loads(declaration)))
    sentences = [f"the {i}th document says {i * i} times" for i in range(40)]
    for split in ("train", "dev"):
        rows = [f"{text},{'good' if i % 3 else 'bad'}" for i, text in enumerate(sentences)]
        (folder / "my_task" / f"{split}.csv").write_text("\n".join(["review,verdict", *rows]))
        cola = [f"a\t{i % 2}\t\t{text}" for i, text in enumerate(sentences)]
        rte = [f"{i}\t{t}\t{t}\t{'not_' * (i < 1)}entailment" for i, t in enumerate(sentences)]
        for name, lines in (("CoLA", cola), ("RTE", ["index\tsentence1\tsentence2\tlabel", *rte])):
            path = folder / "my_glue" / name / f"{split}.tsv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(lines))


def test_every_command_is_known():
    texts = [path.read_text(encoding="utf-8") for path in DOCUMENTS]
    found = {program_of(command) for text in texts for command in commands(text)}
    found |= {name for text in texts for name in re.findall(r"`python -m\s([a-z_.]+)", text)}
    assert len(found) >= 12
    for program in found - {*COMMANDS, "convbert.benchmarks.", "pip", "pytest", "venv"}:
        module = ROOT / program.removeprefix("convbert.").replace(".", "/")
        files = (ROOT / program, module.with_suffix(".py"), module / "__main__.py")
        assert any(file.is_file() for file in files), program


def test_the_first_lines_of_python_give_vectors():
    blocks = (block.group() for block in re.finditer(r"\n\n(    .*\n|\n)+", README))
    block = next(block for block in blocks if "import convbert" in block)
    names = {}
    exec(textwrap.dedent(block), names)
    assert names["vectors"].shape == (2, 128)


@pytest.mark.parametrize("program", FLAGS)
def test_every_flag_is_described(program):
    name, title = FLAGS[program]
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    section = re.search(rf"\n{title}\n.*?\n\| flag(.*?)\n\n", text, re.S)[1]
    described = set(re.findall(r"`--(\w+)`", section))
    source = (ROOT / program).read_text(encoding="utf-8")
    if "device_flags" in source:
        source += (ROOT / "training" / "device_flags.py").read_text(encoding="utf-8")
    defined = set(re.findall(r"DEFINE_\w+\(\s*\"(\w+)\"", source))
    assert described == defined != set()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_files_exist(path):
    text = path.read_text(encoding="utf-8")
    for named in re.findall(r"tests/[a-z0-9_/]+\.py", text):
        assert (ROOT / named).exists(), named
    text = re.sub(r"^    .*", "", text, flags=re.M)
    for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", text):
        assert (path.parent / target).exists(), target
    for link in re.findall(r"\]\(([^):]*#[^)]+)\)", text):
        name, anchor = link.split("#")
        target = (path.parent / name if name else path).read_text(encoding="utf-8")
        headings = [
            re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
            for line in target.splitlines()
            if line.startswith("#")
        ]
        assert anchor in headings, link
