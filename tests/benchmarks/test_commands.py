"""Every contestant of ours runs; every command makes its table and its targets from the numbers."""

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import pathlib
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from benchmarks import ours, served
from benchmarks.contest import Result
from benchmarks.texts import texts
from data import records
from errors import InputError
from model import EncoderConfig, named_size
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
HUGGING_FACE = pathlib.Path(ours.__file__).with_name("huggingface.py")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """CoLA in GLUE's format, a vocabulary, and a record file of pre-training data."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "CoLA").mkdir()
    rows = [f"a\t{i % 2}\t\t{'a b c ' * (i % 5 + 1)}" for i in range(12)]
    for split in ("train", "dev"):
        (folder / "CoLA" / f"{split}.tsv").write_text("\n".join(rows))
    VOCABULARY.save(folder)
    (folder / "pretrain_tfrecords").mkdir()
    ids = np.full([20, 16], 7, np.int32)
    content = records.encode_examples(ids, np.ones_like(ids), np.zeros_like(ids))
    path = folder / "pretrain_tfrecords" / "pretrain_data.tfrecord-00000-of-00001"
    records.write_record_file(str(path), [content])
    return str(folder)


# ---------------------------------------------------------------- contestants


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
        pytest.param(
            "encoder_gradients",
            {"fields": FIELDS, "precision": "mixed_bfloat16", **SHAPE},
            marks=pytest.mark.bfloat16,
        ),
    ],
)
def test_contestants_run(function, arguments):
    run = getattr(ours, function)(**arguments)
    run()
    run()


def test_a_named_size_is_as_good_as_its_fields():
    fields = dataclasses.asdict(named_size("tiny"))
    shapes = [
        ours.inference(**SHAPE, **how)().shape for how in ({"size": "tiny"}, {"fields": fields})
    ]
    assert shapes == [(2, 16, 128)] * 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_flops_of_a_product(dtype):
    run = ours.matmul(4, 3, 5, dtype=dtype, products=2)
    run()
    assert run.facts == {"flops": 2 * 4 * 3 * 5 * 2}


def test_memory_of_the_passes_starts_before_the_first():
    run = ours.encoder_gradients(FIELDS, **SHAPE)
    assert 0.01 < run.facts["memory_before"] < 100


def test_flops_of_a_training_step():
    """Of masked language modelling, as counted by hand; three forward passes."""
    hparams = ours.step_hparams(**STEP, **SHAPE, objective="masked_lm")
    D, E, A, N, K, inner, S, V = 16, 8, 8, 2, 5, 32, 16, 1100
    projections = 4 * D * A + 2 * A * D + K * D + D * A + A * N * K
    layer = projections + 2 * A * S + 2 * D * inner
    head = (D * E + E * V) * 2 / S  # two of sixteen tokens are masked
    forward = 2 * (E * D + layer + head)
    assert ours.step_flops(hparams) == pytest.approx(3 * forward * 2 * S)
    assert ours.step_flops(ours.step_hparams(**STEP, **SHAPE)) > 3 * forward * 2 * S


@pytest.mark.parametrize("changes", [{}, {"conv_type": "noconv", "head_ratio": 1}])
def test_the_training_step_runs(changes):
    run = ours.pretraining_step(**STEP, **SHAPE, **changes)
    run()
    assert run.facts["flops"] > 0


def test_the_input_pipeline_runs(data_dir):
    run = ours.input_pipeline(data_dir, **SHAPE, batches=15)
    run()
    assert run.facts == {"examples": 30}


def finetuning(data_dir, **more):
    fields = dataclasses.asdict(WIDE.replace(vocab_size=VOCABULARY.size))
    files = {"data_dir": data_dir, "vocab": data_dir}
    return {"fields": fields, "task": "cola", **files, "batch": 5, **more}


@pytest.mark.parametrize(("most", "rows"), [(0, 12), (5, 5)])
def test_rows_of_fine_tuning(data_dir, most, rows):
    _, encoded, hparams = ours.finetuning_rows(**finetuning(data_dir, max_examples=most))
    assert encoded.lengths.tolist() == [3 * (i % 5 + 1) + 2 for i in range(rows)]
    assert len(encoded.rows["label"]) == rows
    assert len(encoded.tokens["input_ids"]) == encoded.row_splits[-1]
    assert hparams.length_buckets


def test_a_fine_tuning_epoch_runs(data_dir):
    run = ours.finetuning_epoch(**finetuning(data_dir))
    run()
    assert run.facts == {"examples": 10}  # of twelve: full batches only


# ---------------------------------------------------------------- commands


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a command with made-up results: `seconds` by a contestant's name, 1.0 for others."""

    def run(name, *arguments, seconds=None, missing=(), facts=None, **replaced):
        own = flags.FlagValues()  # commands share names of flags
        for define in [word for word in dir(flags) if word.startswith("DEFINE_")]:
            known = functools.partial(getattr(flags, define), flag_values=own)
            monkeypatch.setattr(flags, define, known)
        monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
        module = importlib.import_module(f"benchmarks.{name}")

        def compete(contestants, rounds):
            assert rounds >= 1
            return {made.name: result(made) for made in contestants}

        def result(made):
            check_arguments(made)
            if made.name in missing:
                return Result(missing="torch is not installed")
            time = (seconds or {}).get(made.name, 1.0)
            return Result((time,) * 3, 2.0, (facts or {}).get(made.name, {}))

        monkeypatch.setattr(module, "compete", compete)
        for function, stand_in in replaced.items():
            monkeypatch.setattr(module, function, stand_in)
        own([name, *arguments])
        module.main([])
        output = capsys.readouterr().out
        monkeypatch.undo()
        return output

    return run


def check_arguments(made):
    """A contestant's function exists and takes its arguments, which go through JSON."""
    module, function = made.target.split(":")
    arguments = json.loads(json.dumps(made.arguments))
    if module != "benchmarks.huggingface":
        own = {"benchmarks.ours": ours, "benchmarks.served": served}[module]
        inspect.signature(getattr(own, function)).bind(**arguments)
        return
    functions = ast.parse(HUGGING_FACE.read_text()).body  # not imported: it needs torch
    (found,) = (node for node in functions if getattr(node, "name", None) == function)
    names = [argument.arg for argument in found.args.args]
    assert set(arguments) <= set(names)
    assert set(names[: len(names) - len(found.args.defaults)]) <= set(arguments)
    for name in ("fields", "generator_fields"):
        EncoderConfig(**arguments.get(name, FIELDS))


def table_of(output):
    """The cells of each row, after the header and the rule; all rows are as long as the header."""
    rows = [line.split("|")[1:-1] for line in output.splitlines() if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1
    assert all(set(cell) <= set("- :") for cell in rows[1])
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_matmul_ceiling(command):
    names = ("float32", "bfloat16", "torch float32", "torch bfloat16")
    output = command(
        "matmul_ceiling", "--sizes=small,medium-small", "--batches=32,2",
        seconds={"bfloat16": 0.5}, facts={name: {"flops": 2e11} for name in names},
    )  # fmt: skip
    rows = table_of(output)
    assert rows[0] == ["square", "2048", "2048", "2048", "200", "400", "2.00", "200", "200"]
    assert rows[4][:4] == ["small, feed-forward in", "4096", "256", "1024"]
    assert rows[9][:4] == ["medium-small, feed-forward in", "256", "192", "768"]
    assert "tensorflow 2." in output
    assert "commit " in output


def test_mixed_attention_block(command):
    output = command("mixed_attention_block", seconds={"mixed": 0.85})
    rows = table_of(output)
    assert [row[0] for row in rows] == ["128", "256", "512"]
    assert rows[0][6:] == ["0.86", "0.85"]
    assert rows[2][5:] == ["250.0", "0.79", "0.85"]
    assert "length 128, at most 0.88: 0.850, reached" in output
    assert "length 512, at most 0.8: 0.850, not reached" in output
    forward = float(rows[0][2])
    training = float(table_of(command("mixed_attention_block", "--training"))[0][2])
    assert training == pytest.approx(3 * forward, rel=0.01)


def test_inference(command):
    output = command(
        "inference", "--lengths=128",
        seconds={"ConvBERT": 0.5, "ELECTRA": 0.6, "HF ConvBERT": 0.7}, missing=["HF ELECTRA"],
    )  # fmt: skip
    rows = table_of(output)
    assert [row[:3] for row in rows[:3]] == [
        ["small", "1", "128"], ["small", "32", "128"], ["medium-small", "1", "128"]
    ]  # fmt: skip
    assert rows[0][3:] == ["500.0", "600.0", "700.0", "not run", "1.20", "1.40", "not run"]
    assert "our ELECTRA's, lowest, at least 1: 1.200, reached" in output
    assert "small, lowest, at least 1.5: 1.400, not reached" in output
    assert "base, lowest, at least 1.3: 1.400, reached" in output
    assert output.count("- HF ELECTRA: not run, torch is not installed") == 1


def test_export_latency(command):
    vector = {"vector": [1.0, 2.0]}
    arguments = ["--sizes=small", "--batches=1,32", "--lengths=16"]
    seconds = {"SavedModel": 0.5, "HF ConvBERT": 0.8}
    made = {}

    def prepare(size, folder):
        made[size] = folder
        return ["- small, float32: 1.0 MB on disk"]

    name = "export_latency"
    facts = {"SavedModel": vector, "HF ConvBERT": {"vector": [1.0, 2.00001]}}
    output = command(name, *arguments, seconds=seconds, facts=facts, prepare=prepare)
    rows = table_of(output)
    assert [row[:3] for row in rows] == [["small", "1", "16"], ["small", "32", "16"]]
    assert rows[0][3:] == ["500.0", "1000.0", "800.0", "1000.0", "1.60", "1.00"]
    assert "float32, small, lowest, at least 1.5: 1.600, reached" in output
    assert "1.0 MB on disk" in output
    assert not pathlib.Path(made["small"]).exists()
    facts["HF ConvBERT"] = {"vector": [1.0, 2.1]}
    with pytest.raises(InputError, match=r"differ by 0\.1"):
        command(name, *arguments, facts=facts, prepare=prepare)


@pytest.mark.slow  # needs twenty seconds: it exports a model
def test_texts_have_the_length_asked_for(tmp_path):
    """Through the exported model: a word is a piece."""
    model, exported = tmp_path / "model", tmp_path / "exported"
    served.make_model("tiny", str(model))
    line = ["--model_dir", model, "--output_dir", exported]
    assert command_support.run("export_savedmodel.py", *line).returncode == 0
    answer = served.vectors(str(exported), batch=2, length=12)
    assert answer().shape == (2, named_size("tiny").hidden_size)
    assert answer.facts["vector"] == pytest.approx(answer()[0].tolist())
    counts = answer.model.signatures["embeddings"](text=tf.constant(texts(2, 12)))["num_pieces"]
    assert counts.numpy().tolist() == [12, 12]


CEILING = {"matrix product": {"flops": 1e11}}


def test_pretraining_step(command):
    seconds = {"ConvBERT": 1.5, "HF ConvBERT": 4.0, "ConvBERT, float32": 1.8}
    output = command("pretraining_step", seconds=seconds, facts=CEILING)
    rows = {row[0]: row[1:] for row in table_of(output)}
    assert len(rows) == 15
    assert rows["matrix product, float32"] == ["", "", "100", "100%", "", ""]
    speed = ours.step_flops(ours.step_hparams("small", 32, 128)) / 1.5e9
    own = ["1500.0", "21.3", f"{speed:.0f}", f"{speed:.0f}%", "2.00", "1.00"]
    assert rows["ConvBERT, float32"] == own
    assert rows["HF ConvBERT, mixed_bfloat16"][-1] == "2.67"
    assert rows["original (scaled), float32"] == ["5460.0", "5.9", "", "", "", "3.64"]
    for line in (
        "Hugging Face's, small, float32, at least 1.5: 2.667, reached",
        "Hugging Face's, small, mixed_bfloat16, at least 2: 2.667, reached",
        "original's (scaled), at least 1.4: 3.640, reached",
        "float32, small, mixed_bfloat16, at least 1.6: 1.200, not reached",
    ):
        assert line in output


def test_pretraining_step_of_the_base_size_without_peers(command):
    output = command(
        "pretraining_step", "--size=base", "--batch=4", "--length=512", "--precisions=float32",
        "--systems=ConvBERT", "--systems=HF ConvBERT", missing=["HF ConvBERT"], facts=CEILING,
    )  # fmt: skip
    rows = {row[0]: row[1:] for row in table_of(output)}
    assert len(rows) == 3
    assert rows["HF ConvBERT, float32"] == ["not run"] * 6
    assert "peak memory over ELECTRA's, base, float32, at most 1: not run" in output
    assert "share of the ceiling, base, float32, at least 0.75: " in output
    assert "scaled" not in output


def test_finetuning_epoch(command, data_dir):
    output = command(
        "finetuning_epoch", f"--data_dir={data_dir}", f"--vocab={data_dir}", "--tasks=cola",
        "--batch=5", seconds={"HF ConvBERT": 2.4}, missing=["HF ConvBERT grouped"],
        facts={"ConvBERT": {"examples": 10}},
    )  # fmt: skip
    (row,) = table_of(output)
    # Ten of the twelve rows take a second.
    assert row == ["cola", "12", "10.2", "1.20", "2.40", "not run", "2.00", "not run"]
    assert "dynamic padding, cola, required, at least 1.3: 2.000, reached" in output
    assert "dynamic padding, cola, hoped for, at least 3: 2.000, not reached" in output


def test_input_pipeline(command, data_dir):
    output = command(
        "input_pipeline", f"--data_dir={data_dir}", "--batches=100", seconds={"pipeline": 2.0}
    )
    assert table_of(output) == [["pipeline", "1,600"], ["training step", "32.0"]]
    assert "at least 20: 50.000, reached" in output


def test_growth(command):
    """Time goes with the cube of the length and with the batch, memory with both."""
    shapes = [(8, 64), (8, 128), (8, 256), (8, 512), (1, 512), (2, 512), (4, 512)]
    seconds = {f"{batch} x {length}": batch * length**3 / 1e6 for batch, length in shapes}
    facts = {f"{b} x {s}": {"memory_before": 2.0 - b * s / 2**13} for b, s in shapes}
    output = command("growth", seconds=seconds, facts=facts)
    rows = table_of(output)
    assert len(rows) == 16
    assert rows[0] == ["ConvBERT", "8", "64", "2097.2", "0.062"]
    assert rows[7] == ["ConvBERT", "8", "512", "1073741.8", "0.500"]
    assert "exponent of ConvBERT's time in the length, at most 2: 3.000, not reached" in output
    assert "exponent of ConvBERT's memory in the length, at most 2: 1.000, reached" in output
    assert "exponent of ELECTRA's time in the batch, at most 1.1: 1.000, reached" in output
    assert "6 of 8 grow no faster than attention scores do." in output
