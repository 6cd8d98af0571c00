"""analysis.cost: hand-computed cases, published times, what the command accepts."""

from __future__ import annotations

import pathlib
import re

import pytest

from analysis import cost
from analysis.cost_model import (
    DataRates,
    Group,
    corpus_cost,
    hours,
    parse_group,
    published_checks,
    recipe_cost,
)
from analysis.operations import EXECUTED, recipe_hparams, training_flops
from common.errors import InputError
from tests.command_support import ROOT

RATES = DataRates(
    tokens_per_second=1e6,
    characters_per_token=4.0,
    tokens_per_example={128: 100.0},
    bytes_per_example={128: 500.0},
    build_machines=2,
)


def test_a_corpus_by_hand():
    # 4 GB of text: 1e9 tokens, 1e7 examples, 5 GB, 500 seconds for two machines.
    found = corpus_cost(4.0, 128, RATES)
    assert found["tokens"] == pytest.approx(1e9)
    assert found["examples"] == pytest.approx(1e7)
    assert found["disk_bytes"] == pytest.approx(5e9)
    assert found["build_hours"] == pytest.approx(500 / 3600)
    with pytest.raises(InputError):
        corpus_cost(4.0, 64, RATES)  # a length that was not measured


def test_hours_by_hand():
    four = Group("four", 4, 1e12)
    assert hours(3.6e15, four, 0.5) == pytest.approx(0.5)  # 2e12 FLOP/s: 1800 s
    assert parse_group("tpu_v3-8").peak == 492e12  # four chips


def test_a_recipe_by_hand():
    hparams = recipe_hparams('{"model_size": "convbert-small", "num_train_steps": 1000}')
    groups = [parse_group("a100"), parse_group("a100:8")]
    found = recipe_cost(hparams, groups, 0.25, RATES, steps=100)
    flops = training_flops(hparams, EXECUTED) / 10
    read = 100 * hparams.train_batch_size
    assert found["flops"] == pytest.approx(flops)
    assert found["epochs"][16.0] == pytest.approx(read / (16e9 / 4 / 100))
    one, eight = (found["on"][group.name] for group in groups)
    seconds = flops / (312e12 * 0.25)
    assert one["hours"] == pytest.approx(seconds / 3600)
    assert one["reading_bytes_per_second"] == pytest.approx(read * 500 / seconds)
    assert eight["hours"] == pytest.approx(one["hours"] / 8)
    assert eight["device_hours"] == pytest.approx(one["device_hours"])


@pytest.mark.parametrize("name", ["h200", "h100:0", "h100:x", ""])
def test_other_devices_are_rejected(name):
    with pytest.raises(InputError):
        parse_group(name)


def test_published_times_of_base_are_reproduced_within_a_factor_of_2_1():
    """At the assumed share. Those of small models are longer: a TPU attains less with them."""
    found = {check["model"]: check for check in published_checks(cost.ASSUMED_SHARE)}
    for model, check in found.items():
        ratio = check["published_over_computed"]
        low, high = (1 / 2.1, 2.1) if model.endswith("base") else (3.5, 6.5)
        assert low < ratio < high, model
        assert check["implied_share"] == pytest.approx(cost.ASSUMED_SHARE / ratio)


def test_the_tables_of_the_documentation_are_printed(capsys):
    cost.main(["cost", "--markdown"])
    printed = capsys.readouterr().out
    text = (pathlib.Path(ROOT) / "docs" / "scale.md").read_text(encoding="utf-8")
    found = re.findall(r"<!-- analysis.cost: (.+?) -->\n\n(.+?)\n\n<!-- / -->", text, re.DOTALL)
    assert len(found) == 3
    for name, table in found:
        assert f"### {name}\n\n{table}\n" in printed, name


@pytest.mark.parametrize(
    "flag", ["--attained_share=0", "--attained_share=1.5", "--build_machines=0"]
)
def test_impossible_rates_are_rejected(flag):
    with pytest.raises(InputError) as error:
        cost.main(["cost", flag])
    assert flag.split("=")[0] in str(error.value)
