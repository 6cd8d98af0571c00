"""Every system of ours runs; every command asks for systems that exist and makes its table."""

import dataclasses

import pytest
import tensorflow as tf

from benchmarks import (
    ours,
    ours_finetuning,
    ours_generation,
    ours_vocabulary,
    ours_xlnet,
    random_model,
)
from benchmarks.texts import texts
from errors import InputError
from model import named_size
from model.kernels import vocabulary
from tests import command_support
from tests.build_support import VOCABULARY
from tests.model_support import TINY

# Ids of benchmarks start at 1000.
WIDE = TINY.replace(vocab_size=1100, num_hidden_layers=1)
FIELDS = dataclasses.asdict(WIDE)
ATTENTION = dataclasses.asdict(WIDE.replace(token_mixer="attention", head_ratio=1))
SHAPE = {"batch": 2, "length": 16}
OVERRIDES = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers")
OVERRIDES += ("num_attention_heads", "intermediate_size", "conv_kernel_size")
STEP = {
    "size": "tiny",
    "generator_hidden_size": 0.5,
    "model_hparam_overrides": {name: FIELDS[name] for name in OVERRIDES},
}
WAYS = ("micro-batches of 4", "rematerialized")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """CoLA in GLUE's format, and a vocabulary."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "CoLA").mkdir()
    rows = [f"a\t{i % 2}\t\t{'a b c ' * (i % 5 + 1)}" for i in range(12)]
    for split in ("train", "dev"):
        (folder / "CoLA" / f"{split}.tsv").write_text("\n".join(rows))
    VOCABULARY.save(folder)
    return str(folder)


# ---------------------------------------------------------------- systems


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("inference", {"fields": FIELDS, **SHAPE}),
        ("inference", {"fields": ATTENTION, "xla": True, **SHAPE}),
        ("mixer_block", {"fields": FIELDS, **SHAPE}),
        ("mixer_block", {"fields": ATTENTION, "training": True, **SHAPE}),
        pytest.param(
            "mixer_block",
            {"fields": FIELDS, "training": True, "precision": "mixed_bfloat16", **SHAPE},
            marks=pytest.mark.bfloat16,
        ),
    ],
)
def test_systems_run(function, arguments):
    run = getattr(ours, function)(**arguments)
    run()
    run()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_flops_of_a_product(dtype):
    run = ours.matmul(4, 3, 5, dtype=dtype, products=2)
    run()
    assert run.facts == {"flops": 2 * 4 * 3 * 5 * 2}


def test_flops_of_a_training_step():
    """Masked language modelling, as counted by hand; three forward passes."""
    hparams = ours.step_hparams(**STEP, **SHAPE, objective="masked_lm")
    D, E, A, N, K, inner, S, V = 16, 8, 8, 2, 5, 32, 16, 1100
    projections = 4 * D * A + 2 * A * D + K * D + D * A + A * N * K
    layer = projections + 2 * A * S + 2 * D * inner
    head = (D * E + E * V) * 2 / S  # two of sixteen tokens are masked
    forward = 2 * (E * D + layer + head)
    assert ours.step_flops(hparams) == pytest.approx(3 * forward * 2 * S)
    assert ours.step_flops(ours.step_hparams(**STEP, **SHAPE)) > 3 * forward * 2 * S


@pytest.mark.parametrize(
    ("changes", "overrides"),
    [
        ({}, {}),
        ({"conv_type": "noconv", "head_ratio": 1}, {}),
        ({"objective": "causal_lm"}, {"causal": True}),
        ({"objective": "permutation_lm", "model_size": "xlnet-{size}"}, {}),
    ],
)
def test_the_training_step_runs(changes, overrides):
    overrides = {**STEP["model_hparam_overrides"], **overrides}
    if "model_size" in changes:  # it has no such fields
        del overrides["embedding_size"], overrides["conv_kernel_size"]
    run = ours.pretraining_step(**{**STEP, "model_hparam_overrides": overrides}, **changes, **SHAPE)
    run()
    assert run.facts["flops"] > 0


def finetuning(data_dir, **more):
    fields = dataclasses.asdict(WIDE.replace(vocab_size=VOCABULARY.size))
    files = {"data_dir": data_dir, "vocab": data_dir}
    return {"fields": fields, "task": "cola", **files, "batch": 5, **more}


@pytest.mark.parametrize(("most", "rows"), [(0, 12), (5, 5)])
def test_rows_of_fine_tuning(data_dir, most, rows):
    _, encoded, hparams = ours_finetuning.finetuning_rows(**finetuning(data_dir, max_examples=most))
    assert encoded.lengths.tolist() == [3 * (i % 5 + 1) + 2 for i in range(rows)]
    assert len(encoded.sequences["label"]) == rows
    assert len(encoded.tokens["input_ids"]) == encoded.row_splits[-1]
    assert hparams.length_buckets


def test_a_fine_tuning_epoch_runs(data_dir):
    run = ours_finetuning.finetuning_epoch(**finetuning(data_dir))
    run()
    assert run.facts == {"examples": 10}  # of twelve: full batches only


# ---------------------------------------------------------------- commands


def test_mixed_attention_block(command):
    rows = command("mixed_attention_block", seconds={"mixed": 0.85})
    assert [row[0] for row in rows] == ["128", "256", "512"]
    assert rows[2][5:] == ["250.0", "0.79", "0.85"]
    training = command("mixed_attention_block", "--training")
    assert float(training[0][2]) == pytest.approx(3 * float(rows[0][2]), rel=0.01)


def test_inference(command):
    seconds = {"ConvBERT": 0.5, "ELECTRA": 0.6, "HF ConvBERT": 0.7}
    rows = command("inference", "--lengths=128", "--sizes=small,base", seconds=seconds)
    assert [row[:2] for row in rows] == [[s, b] for s in ("small", "base") for b in ("1", "32")]
    assert rows[0][2:] == ["128", "500.0", "600.0", "700.0", "1000.0", "1.20", "1.40", "2.00"]


def test_xlnet(command):
    rows = command("xlnet", "--shapes=4x64", seconds={"HF": 1.3})
    assert rows == [
        ["base", phase, "4", "64", "1000.0", "1300.0", "1.30"]
        for phase in ("inference", "training")
    ]
    for wrong in ("--shapes=4", "--shapes=0x8", "--phases=both"):
        with pytest.raises(InputError, match=wrong[:8]):
            command("xlnet", wrong)


@pytest.mark.slow  # traces two networks
def test_xlnets_systems_run():
    config = named_size("xlnet-tiny").replace(num_hidden_layers=1)
    fields = dataclasses.asdict(config)
    assert ours_xlnet.inference(fields, **SHAPE)().shape == (2, 16, 128)
    assert 0.3 < ours_xlnet.classification_step(fields, **SHAPE)() < 2.0


def test_pretraining_step(command):
    seconds = {"ConvBERT": 1.5, "HF ConvBERT": 4.0, "baseline": 1.8}
    facts = {"matrix product": {"flops": 1e11}}
    rows = command("pretraining_step", "--baseline=elsewhere", seconds=seconds, facts=facts)
    rows = {row[0]: row[1:] for row in rows}
    assert len(rows) == 25
    assert rows["matrix product, float32"] == ["", "", "100", "100%", "", ""]
    speed = ours.step_flops(ours.step_hparams("small", 32, 128)) / 1.5e9
    own = ["1500.0", "21.3", f"{speed:.0f}", f"{speed:.0f}%", "2.00", "1.00"]
    assert rows["ConvBERT, float32"] == own
    assert rows["HF ConvBERT, mixed_bfloat16"][-1] == "2.67"
    assert rows["baseline, float32"][-1] == "1.20"
    assert rows["original (scaled), float32"] == ["5460.0", "5.9", "", "", "", "3.64"]
    base = ["--size=base", "--precisions=float32", "--systems=ELECTRA"]
    assert len(command("pretraining_step", *base, facts=facts)) == 2
    relative = ["--relative_to=ELECTRA", "--systems=SCRIPT"]
    rows = command("pretraining_step", *base, *relative, seconds={"SCRIPT": 2.2}, facts=facts)
    assert [row[-1] for row in rows] == ["", "1.00", "2.20"]
    ways = ["--less_memory=4", "--less_memory=rematerialized"]
    rows = command("pretraining_step", *base, *ways, facts=facts)
    assert [row[0] for row in rows[2:]] == [f"{way}, float32" for way in WAYS]


@pytest.mark.slow  # eleven commands, two minutes
def test_starting():
    given = ("--size=tiny", "--batch=4", "--length=16", "--rounds=1")
    said = command_support.run("-m", "benchmarks.starting", *given)
    assert said.returncode == 0, said.stderr
    rows = [line.split("|")[1:-1] for line in said.stdout.splitlines() if line.startswith("|")][2:]
    assert [row[1].strip() for row in rows] == ["100", "100,000", "100", "1,000", "4", "201"]
    assert all(0.0 <= float(row[2]) < 120.0 for row in rows)


def test_vocabulary_sum(command):
    rows = command("vocabulary_sum", seconds={"critic's loss": 1.2, "all at once": 1.5})
    assert [row[-1] for row in rows] == ["1.00", "1.20", "1.50"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_critics_loss_and_its_products_run(monkeypatch, dtype):
    monkeypatch.setattr(vocabulary, "LARGEST_BLOCK", 3 * 50)
    shape = {"positions": 7, "width": 8, "vocab_size": 50, "dtype": dtype}
    runs = [ours_vocabulary.products(**shape), ours_vocabulary.loss("", **shape)]
    if dtype == "float32":
        runs.append(ours_vocabulary.loss("_reference", **shape))
    for run in runs:
        run()
        assert run.facts == {"flops": 6 * 7 * 8 * 50}


def test_generation(command):
    facts = {name: {"tokens": 8 * 96, "added": [[5, 6]]} for name in ("cached", "uncached")}
    rows = command("generation", seconds={"uncached": 6.0}, facts=facts)
    assert rows[1] == ["causal-mixed-small", "8", "32", "96", "768", "128", "6.00"]
    facts["cached"]["added"] = [[7, 8]]
    with pytest.raises(InputError, match="same tokens"):
        command("generation", facts=facts)


@pytest.mark.slow  # runs two loops
def test_generation_runs():
    fields = dataclasses.asdict(WIDE.replace(causal=True))
    shape = {"fields": fields, "batch": 2, "prompt": 3, "new": 4}
    runs = [ours_generation.generation(**shape, cached=cached) for cached in (True, False)]
    assert runs[0].facts == runs[1].facts
    assert runs[0].facts["tokens"] == 8


@pytest.mark.slow  # traces two steps
@pytest.mark.parametrize("option", [{"micro_batch_size": 1}, {"rematerialized": True}])
def test_a_step_in_less_memory_runs(option):
    run = ours.pretraining_step(**STEP, **SHAPE, **option)
    run()
    assert run.facts["flops"] > 0


def test_finetuning_epoch(command, data_dir):
    files = (f"--data_dir={data_dir}", f"--vocab={data_dir}", "--tasks=cola", "--batch=5")
    facts = {"ConvBERT": {"examples": 10}}  # ten of the twelve take a second
    (row,) = command("finetuning_epoch", *files, seconds={"HF ConvBERT": 2.4}, facts=facts)
    assert row == ["cola", "12", "10.2", "1.20", "2.40", "1.00", "2.00", "0.83"]


@pytest.mark.slow  # needs twenty seconds: it exports a model
def test_texts_have_the_length_asked_for(tmp_path):
    """Through the exported model: a word is a piece."""
    model, exported = tmp_path / "model", tmp_path / "exported"
    random_model.make_model("tiny", str(model))
    line = ["--model_dir", model, "--output_dir", exported]
    assert command_support.run("export_savedmodel.py", *line).returncode == 0
    answer = ours.vectors(str(exported), batch=2, length=12)
    assert answer().shape == (2, named_size("tiny").hidden_size)
    assert answer.facts["vector"] == pytest.approx(answer()[0].tolist())
    counts = answer.model.signatures["embeddings"](text=tf.constant(texts(2, 12)))["num_pieces"]
    assert counts.numpy().tolist() == [12, 12]
