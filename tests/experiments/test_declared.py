"""The experiments that come with the project: settings of the papers, claims, verdicts, tables."""

import functools
import re
from types import SimpleNamespace
from unittest import mock

import pandas as pd
import pytest

from convbert.analysis.operations import Parameters, count_parameters
from convbert.experiments import declaration, forecast, parts, report, runs
from tests.command_support import ROOT

MLM, RTD, CRITIC = "masked_lm", "replaced_token_detection", "self_critic"
FIELDS = ("learning_rate", "train_batch_size", "max_seq_length", "num_warmup_steps", "optimizer")
SMALL_SIZE, BASE = (5e-4, 128, 128, 10_000, "adam"), (2e-4, 256, 512, 10_000, "adam")
CONV, LAMB = (3e-4, 128, 128, 10_000, "adam"), (5e-4, 1024, 128, 10_000, "lamb")
CONV_BASE = (2e-4, 256, 128, 10_000, "adam")
# Experiment and system -> objective, steps, `FIELDS`, published score. Supplement of ConvBERT,
# Tables 1 and 3; authors' response, Table 4; SCRIPT, Tables 1, 2 and 4; ALE report, Tables IV and
# V, whose updates are those of equal FLOPs here.
TABLES = {
    ("convbert_table3", "BERT MLM"): (MLM, 1_450_000, SMALL_SIZE, 75.1),
    ("convbert_table3", "BERT RTD (ELECTRA)"): (RTD, 1_000_000, SMALL_SIZE, 79.7),
    ("convbert_table3", "ConvBERT MLM"): (MLM, 1_450_000, CONV, 75.9),
    ("convbert_table3", "ConvBERT RTD"): (RTD, 1_000_000, CONV, 80.6),
    ("convbert_table3", "ConvBERT RTD 4M"): (RTD, 4_000_000, CONV, 81.8),
    ("convbert_table3", "ConvBERT-medium-small RTD"): (RTD, 1_000_000, SMALL_SIZE, 82.1),
    ("convbert_table3", "BERT-base MLM"): (MLM, 1_000_000, BASE, 82.2),
    ("convbert_table3", "BERT-base RTD (ELECTRA)"): (RTD, 766_000, BASE, 85.1),
    ("convbert_table3", "ConvBERT-medium-small RTD 4M"): (RTD, 4_000_000, SMALL_SIZE, 82.8),
    ("convbert_table3", "ConvBERT-base RTD"): (RTD, 1_000_000, CONV_BASE, 86.0),
    ("convbert_table3", "ConvBERT-base RTD 4M"): (RTD, 4_000_000, CONV_BASE, 87.7),
    ("convbert_table4", "+BNK +GL"): (RTD, 1_000_000, SMALL_SIZE, 81.0),
    ("convbert_table4", "+BNK +GL +Larger"): (RTD, 1_000_000, SMALL_SIZE, 81.1),
    ("script_table1", "BERT-small"): (MLM, 1_000_000, SMALL_SIZE, None),
    ("script_table1", "ELECTRA-small"): (RTD, 1_000_000, SMALL_SIZE, 80.38),
    ("script_table1", "SCRIPT-small"): (CRITIC, 1_000_000, SMALL_SIZE, 81.32),
    ("script_table1", "BERT-base"): (MLM, 766_000, BASE, None),
    ("script_table1", "ELECTRA-base"): (RTD, 766_000, BASE, 85.06),
    ("script_table1", "SCRIPT-base"): (CRITIC, 766_000, BASE, 85.76),
    ("ale_table4", "BERT LAMB"): (MLM, 163_000, LAMB, 75.7),
    ("ale_table4", "ELECTRA LAMB"): (RTD, 123_209, LAMB, 76.8),
    ("ale_table4", "ELECTRA LAMB 2x"): (RTD, 246_418, LAMB, 77.6),
    ("ale_table4", "ALE LAMB"): (RTD, 123_209, LAMB, 71.3),
}
# Experiment -> statistic, seeds of fine-tuning, its recipe, number of tasks.
PROTOCOLS = {
    "convbert_table3": ("median", 9, "configs/finetune_convbert.json", 8),
    "script_table1": ("mean", 8, "configs/finetune_script.json", 8),
    "squad": ("mean", 8, "configs/finetune_script.json", 2),
    "ale_table4": ("best", 10, "configs/finetune_ale.json", 8),
    "ptb_tagging": ("mean", 10, "configs/finetune_ptb.json", 2),
    "race": ("mean", 10, "configs/finetune_race_bert.json", 1),
}
SCORES = ("loss", "perplexity", "similarity", "search", "similarity_whitened", "search_whitened")
SCORES += ("concentration", "rescored")


@functools.cache
def of_papers(name: str, scale: str):
    experiment = declaration.load(name, scale)
    with mock.patch.object(runs, "_seconds", return_value=0.1):  # no step is timed here
        return experiment, parts.plan(experiment)


@pytest.mark.parametrize(("name", "system"), TABLES)
def test_hyper_parameters_are_the_tables(name, system):
    experiment, found = of_papers(name, "paper")
    run = next(run for run in found if run.system == system)
    objective, steps, values, published = TABLES[name, system]
    assert (run.hparams.objective.name, run.hparams.num_train_steps) == (objective, steps)
    assert tuple(getattr(run.hparams, field) for field in FIELDS) == values
    assert experiment.systems[system].published.get("average") == published


def test_protocols():
    for name, protocol in PROTOCOLS.items():
        experiment, _ = of_papers(name, "paper")
        scale = experiment.scale
        found = (experiment.statistic, scale.num_trials, scale.recipe, len(scale.tasks))
        assert found == protocol


@pytest.mark.parametrize("scale", declaration.SCALES)
def test_every_experiment_can_be_planned(scale, monkeypatch):
    """All systems of one scale are different runs, and every claim's score will exist."""
    monkeypatch.setattr(forecast, "seconds_per_step", lambda hparams: 1.0)
    monkeypatch.setattr(forecast, "count_parameters", lambda hparams: Parameters(1, 1))
    for name in declaration.names():
        experiment, found = of_papers(name, scale)
        assert len({run.folder for run in found}) == len(found), name
        table = forecast.table(experiment, parts.left(experiment, found))
        assert f"{len(found)} runs of pre-training" in table
        assert len(found) == len(experiment.chosen) * experiment.scale.seeds
        for claim in experiment.claims:
            for score in filter(None, (claim.score, claim.than_score)):
                tasks = (declaration.AVERAGE, *experiment.scale.tasks)
                assert score in tasks or score.rpartition(" ")[2] in SCORES, (name, claim)


def test_sizes_masks_and_flops_of_the_tables():
    """Table 4 of the response, the ten copies of static masking, ALE's equal FLOPs."""
    _, found = of_papers("convbert_table4", "paper")
    millions = {run.system: count_parameters(run.hparams).encoder // 10**6 for run in found}
    assert (millions["+BNK +GL"], millions["+BNK +GL +Larger"]) == (14, 17)
    _, found = of_papers("masking", "paper")
    masks = {run.system: run.hparams.objective.static_masks for run in found}
    assert masks == {"dynamic": 0, "static": 10}
    _, found = of_papers("ale_table4", "paper")
    flops = {run.system: run.flops() for run in found}
    assert flops["ALE LAMB"] == pytest.approx(flops["BERT LAMB"], rel=1e-4)
    assert flops["ELECTRA LAMB 2x"] == pytest.approx(2 * flops["BERT LAMB"], rel=1e-4)


@pytest.mark.parametrize("scale", declaration.SCALES)
def test_weight_of_the_critic_is_the_papers(scale):
    """Scale hour's `disc_weight` is ELECTRA's; a system with another one says so in its name."""
    every = (run for name in declaration.names() for run in of_papers(name, scale)[1])
    found = [run for run in every if run.hparams.objective.name == CRITIC]
    assert {run.hparams.objective.disc_weight for run in found if "alpha" not in run.system} == {
        50.0
    }


@pytest.mark.parametrize(
    ("claim", "differences", "verdict"),
    [
        ({}, [1.0, 1.1, 0.9], "holds"),
        ({}, [-1.0, -1.1, -0.9], "contradicts"),
        ({}, [1.0, -1.1, 0.9], "does not show"),
        ({"lower_is_better": True}, [-1.0, -1.1, -0.9], "holds"),
        ({"margin": 0.5}, [0.1, -0.1, 0.0], "holds"),
        ({"margin": 0.5}, [1.0, -1.1, 0.9], "does not show"),
        ({"margin": 0.5}, [-1.0, -1.1, -0.9], "contradicts"),
        ({"margin": 0.5, "lower_is_better": True}, [0.1, -0.1, 0.0], "holds"),
        ({}, [1.0], "one seed"),
    ],
)
def test_verdicts(claim, differences, verdict):
    mean, low, high, found = report.judge(declaration.Claim("a", "b", **claim), differences)
    assert found == verdict
    assert mean == pytest.approx(sum(differences) / len(differences))
    if len(differences) == 3:  # t of 97.5 % with two degrees of freedom: 4.303
        error = 4.3027 * (sum((d - mean) ** 2 for d in differences) / 2 / 3) ** 0.5
        assert (low, high) == pytest.approx((mean - error, mean + error), rel=1e-4)


def test_tables_of_scores():
    """Of the last checkpoint; errors over seeds, or over fine-tuning where there is one seed."""
    rows = [("a", 0, step, trial, 10 * step) for step in (1, 2) for trial in ("0", "1")]
    rows += [("a", 1, 2, "0", 26.0), ("a", 1, 2, "1", 30.0), ("b", 0, 2, "0", 1.0)]
    rows += [("b", 0, 2, "1", 3.0)]
    frame = pd.DataFrame(rows, columns=["system", "seed", "step", "trial", "value"])
    frame["score"] = "own accuracy"
    frame.loc[len(frame)] = ["a", 0, 2, "", 3.0, "heldout loss"]
    found = report.errors_table(frame).to_dict("records")
    assert [of["own accuracy"] for of in found] == ["24 ± 4", "2 ± 1"]
    frame.loc[len(frame)] = ["a", 0, 2, "0", 50.0, "other accuracy"]
    best = report.tabulated(frame, "best")
    assert best.index.is_monotonic_increasing  # the loss, which sorts first, begins at step 2
    assert sorted(best["own accuracy"]) == [3, 10, 20, 30]
    assert best["average"].dropna().tolist() == [35]  # where all tasks have a score
    assert "average" not in report.tabulated(frame, "best", num_tasks=3)
    claim = declaration.Claim("a", "a", score="own", than_score="heldout loss")
    last = report.tabulated(frame, "mean").xs(2, level="step")
    assert last["own accuracy"].groupby("system").agg(report._spread)["a"] == "24 (20 to 28)"
    about = SimpleNamespace(claims=[claim])
    for seed in (0, 1):  # the second one has no difference
        frame.loc[len(frame)] = ["a", seed, 2, "1", 1.0, "own collapsed"]
    table = report.claims_table(about, last, frame[frame["step"] == 2])
    assert table[["here", "collapsed"]].values.tolist() == [["+17", "1 of 2"]]
    assert report.claims_table(about, last, frame[:0])["collapsed"].tolist() == [""]


def test_what_is_made_again_replaces_what_was_recorded():
    row = {"source": "a", "step": "9", "trial": "0"}
    old = pd.DataFrame([{**row, "score": of} for of in ("own f1", "own collapsed")])
    assert parts.merged(old[:1], old)["score"].tolist() == ["own f1"]


def test_recorded_rows_of_the_experiment_come_first(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        row = {"source": "it", "score": "heldout loss", "step": 3, "commit": name}
        pd.DataFrame([row]).to_csv(tmp_path / name / "results.csv")
    own = SimpleNamespace(output_dir=str(tmp_path), folder=str(tmp_path / "b"))
    assert parts._recorded(own)["commit"].tolist() == ["b"]


def test_results_state_what_the_reports_have():
    """Differences, intervals and verdicts of results.md's claims are those of the report linked."""
    number, any_number = r"([+-][\d.]+)", r"[+-][\d.]+"
    cells = rf"{number} \|? ?\(?{number} to {number}\)?(?:, \*\*| \| )?([a-z ]*)"
    columns = rf"\| {number} +\| {number} to {number} +\| \d+ +\| ([a-z ]+?) +\|"
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    section = text.partition("## Comparisons of the papers")[2].partition("\n### ")[0]
    assert len(re.findall(rf"\W{any_number} to {any_number}", section)) > 80
    claims = []
    for line in section.splitlines():
        if link := re.search(r"\| .*\[report\]\((experiments/.*?)\)", line):
            claims = re.findall(columns, (ROOT / "docs" / link[1]).read_text(encoding="utf-8"))
        for *values, verdict in [] if "| (three seeds) |" in line else re.findall(cells, line):
            same = [of for *found, of in claims if all(map(rounded_alike, values, found))]
            assert (verdict.strip() or "does not show") in same, line


def rounded_alike(first: str, second: str) -> bool:
    """Returns True if two decimals can be one number, rounded to different digits."""
    units = (10.0 ** -len(of.partition(".")[2]) for of in (first, second))
    return abs(float(first) - float(second)) < 0.5 * sum(units)


def test_a_changed_file_of_a_list_is_other_data(tmp_path):
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.files").write_text(f"{split}.pos\n")
        (tmp_path / f"{split}.pos").write_text("a/NN\n")
    digests = {parts._digest_of_files("ptb", str(tmp_path))}
    (tmp_path / "dev.pos").write_text("b/NN\n")
    for cached in (parts._digest_of_files, parts._digest_of_file):
        cached.cache_clear()
    assert len(digests | {parts._digest_of_files("ptb", str(tmp_path))}) == 2
