"""The comparison of systems by what rescoring with them gains."""

import json

import pytest

from pretrain.hparams import encoder_config, resolve_hparams, split_hparams
from tests.command_flags import import_command
from tests.command_support import run
from tests.pretraining_support import build_data
from tests.scoring.test_rescore import DEV

WIDTHS = ("hidden_size", "embedding_size", "num_hidden_layers", "intermediate_size", "vocab_size")


@pytest.fixture
def rescoring(monkeypatch):
    module, own = import_command(monkeypatch, "benchmarks.rescoring")
    own(["benchmarks.rescoring"])
    return module


def test_all_systems_have_one_size_and_one_budget(rescoring):
    given = {name: split_hparams(rescoring.hparams(name))[0] for name in rescoring.SYSTEMS}
    resolved = {name: resolve_hparams(values, 8192) for name, values in given.items()}
    encoders = {name: encoder_config(hparams, 8192) for name, hparams in resolved.items()}
    budget = ("num_train_steps", "train_batch_size", "max_seq_length", "learning_rate")
    assert len({tuple(getattr(h, name) for name in budget) for h in resolved.values()}) == 1
    assert len({tuple(getattr(e, name) for name in WIDTHS) for e in encoders.values()}) == 1
    for name, encoder in encoders.items():
        assert encoder.causal == (resolved[name].objective.name == "causal_lm")
        assert encoder.hidden_dropout_prob == 0  # the recipe's, which overrides of systems join
    attention = {name for name, e in encoders.items() if e.token_mixer == "attention"}
    assert attention == {"bert", "script", "electra", "causal_transformer"}


def test_the_table_has_means_over_seeds(rescoring, capsys):
    def system(weight, wer, low):
        better = {"points": 16 - wer, "interval": [low, low + 2]}
        return {
            "lambda": weight,
            "dev": {"wer": 5.0},
            "test": {"wer": wer},
            "improvement": better,
            "seconds_per_1000": 2.0,
        }

    rows = {"one_best": {"wer": 16.0}, "oracle": {"wer": 12.0}}
    pairs = {0: (0.1, 15.0, 0.5), 1: (0.2, 15.5, 0.25)}
    systems = {f"{n}-{s}": system(*v) for n in rescoring.SYSTEMS for s, v in pairs.items()}
    rescoring.print_table({"dev": rows, "test": rows, "systems": systems})
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| script ")]
    cells = [cell.strip() for cell in lines[0].split("|")[1:-1]]
    assert cells[1:4] == ["2", "0.1, 0.2", "5.00"]
    assert cells[4:] == ["15.25", "15.00 to 15.50", "+0.75", "+0.25", "2.00"]


@pytest.mark.slow  # trains two models and asks both: six processes that import TensorFlow
def test_the_command_trains_scores_and_resumes(tmp_path):
    data = build_data(tmp_path, words=list("abcdefg"), max_seq_length=16)
    (tmp_path / "dev.json").write_text(json.dumps(DEV))
    tiny = {"num_train_steps": 2, "train_batch_size": 4, "max_seq_length": 16}
    tiny |= {"num_warmup_steps": 1, "model_hparam_overrides": {"num_hidden_layers": 1}}
    command = ["-m", "benchmarks.rescoring", f"--data_dir={data}"]
    command += [f"--dev={tmp_path}/dev.json", f"--test={tmp_path}/dev.json"]
    command += [f"--output_dir={tmp_path}/out", f"--hparams={json.dumps(tiny)}", "--seeds=3"]
    command += ["--systems=bert", "--systems=causal_mixed"]
    done = run(*command)
    assert done.returncode == 0, done.stderr
    for row in ("| 1-best ", "| bert ", "| causal_mixed ", "| oracle "):
        assert row in done.stdout
    written = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*.scores.jsonl")}
    assert {path.name for path in written} == {
        "bert-3.pseudo_log_likelihood.scores.jsonl",
        "causal_mixed-3.causal.scores.jsonl",
    }
    again = run(*command)
    assert again.returncode == 0, again.stderr
    assert {p: p.stat().st_mtime_ns for p in written} == written
    assert done.stdout.splitlines()[-4:] == again.stdout.splitlines()[-4:]
