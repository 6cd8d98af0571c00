"""analysis.cost: a recipe by hand, published times, what the command accepts."""

from __future__ import annotations

import json
import pathlib

import pytest

from convbert.analysis import cost
from convbert.analysis.operations import EXECUTED, recipe_hparams, training_flops
from convbert.common.errors import InputError
from tests.command_support import ROOT


def test_a_recipe_by_hand(tmp_path):
    """Of a run that continues another, its own updates alone; eight devices are 8 times as fast."""
    values = {"model_size": "convbert-small", "num_train_steps": 1000}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({**values, "about": {"cost": {"updates": 100}}}))
    groups = [cost.parse_group(name) for name in ("a100", "a100:8", "tpu_v3-8")]
    name, length, steps, examples, flops, *hours = cost.recipe_row(str(path), groups, 0.25)
    expected = training_flops(recipe_hparams(json.dumps(values)), EXECUTED) / 10
    assert (name, length, steps, examples) == ("mine", "128", "0.1", "0.0")
    assert float(flops) == pytest.approx(expected, rel=0.01)
    peaks = (312e12, 8 * 312e12, 4 * 123e12)
    computed = [expected / (peak * 0.25) / 3600 for peak in peaks]
    assert [float(hour) for hour in hours] == pytest.approx(computed, rel=0.01)


@pytest.mark.parametrize("flag", ["--attained_share=0", "--devices=h200", "--devices=h100:0"])
def test_impossible_values_are_rejected(flag):
    with pytest.raises(InputError) as error:
        cost.main(["cost", flag])
    assert flag.split("=")[0] in str(error.value)


def test_published_times_of_base_are_reproduced_within_a_factor_of_2_1():
    """At the assumed share. Those of small models are longer: a TPU attains less with them."""
    for model, *_, implied, _, ratio in cost.published_rows(cost.ASSUMED_SHARE):
        low, high = (1 / 2.1, 2.1) if model.endswith("base") else (3.5, 6.5)
        assert low < ratio < high, model
        assert implied == pytest.approx(cost.ASSUMED_SHARE / ratio)


def test_the_check_of_the_documentation_is_printed(capsys):
    cost.main(["cost", "--markdown"])
    printed = capsys.readouterr().out
    text = (pathlib.Path(ROOT) / "docs" / "scale.md").read_text(encoding="utf-8")
    _, *table = printed.partition("### Published training times, as a check\n\n")
    assert table[1].strip() in text
    assert "| convbert_base " in printed
