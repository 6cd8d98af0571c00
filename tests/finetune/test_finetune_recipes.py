"""The recipes of fine-tuning say what their tables say; settings are checked and completed."""

import json
import pathlib

import pytest

from convbert.common.errors import InputError
from convbert.finetune.declaration import GLUE_TASKS, TASKS
from convbert.finetune.hparams import resolve_hparams
from convbert.finetune.plan import PAPER_GRID, folder_name, make_plan, setting_of
from convbert.model import named_size
from tests.finetune.kinds_support import rejects

CONFIGS = pathlib.Path(__file__).parents[2] / "configs"
SMALL, BASE = named_size("convbert-small"), named_size("convbert-base")

# Table VI of the ALE report: learning rate, batch, epochs.
_ALE = {"mrpc": (2e-4, 64, 3), "cola": (7e-5, 32, 3), "mnli": (4e-4, 256, 3), "sst": (3e-4, 256, 3)}
_ALE |= {"qqp": (5e-4, 256, 3), "qnli": (2e-4, 256, 3), "rte": (3e-4, 32, 10), "sts": (3e-5, 8, 10)}


def points(tasks, recipe=None, config=SMALL, given=(), **grid):
    """Task -> what the sweep varies and the hyper-parameters of each point."""
    folders = dict.fromkeys(("model_dir", "data_dir", "output_dir"), "")
    merged = recipe or {}, dict(given), {}
    plan = make_plan([TASKS[name] for name in tasks], *merged, grid=grid, **folders)
    return {task.name: list(plan.points(task, config)) for task in plan.tasks}


def resolved(name, task, config=SMALL):
    values = json.loads((CONFIGS / f"{name}.json").read_text())
    ((_, hparams),) = points([task], values, config)[task]
    if "tasks" not in values:  # a recipe may also be the value of --hparams
        assert points([task], {}, config, values)[task] == [({}, hparams)]
    return hparams


@pytest.mark.parametrize(
    ("name", "task", "rate", "epochs", "more"),
    [
        *(
            ("finetune_ale", n, x, epochs, {"train_batch_size": B})
            for n, (x, B, epochs) in _ALE.items()
        ),
        ("finetune_ptb", "ptb", 5e-5, 3, {"max_seq_length": 128, "head": "softmax"}),
        ("finetune_race_bert", "race_middle", 5e-5, 3, {"max_seq_length": 384}),
        ("finetune_race_xlnet", "race_middle", 2e-5, 2, {"max_seq_length": 384}),
    ],
)
def test_the_ale_report(name, task, rate, epochs, more):
    expected = {"learning_rate": rate, "num_train_epochs": epochs, **more}
    expected |= {"layerwise_lr_decay": 0, "loss_reduction": "mean"}
    hparams = resolved(name, task)
    assert {name: getattr(hparams, name) for name in expected} == expected


@pytest.mark.parametrize("name", ["finetune_script", "finetune_convbert"])
@pytest.mark.parametrize("task", [*GLUE_TASKS, "squad", "squadv1"])
def test_script_and_convbert(name, task):
    """Table 5 of SCRIPT; Table 2 of the ConvBERT supplement with the original code's defaults."""
    hparams = resolved(name, task)
    epochs = {"rte": 10, "sts": 10, "squad": 2, "squadv1": 2}.get(task, 3)
    assert (hparams.num_train_epochs, hparams.learning_rate) == (epochs, 3e-4)
    assert resolved(name, task, BASE).learning_rate == 1e-4
    assert hparams.weight_decay_rate == (0 if name == "finetune_script" else 0.01)
    assert (hparams.train_batch_size, hparams.warmup_proportion) == (32, 0.1)
    assert (hparams.layerwise_lr_decay, hparams.corrected_layerwise_lr_decay) == (0.8, False)
    assert hparams.hidden_dropout_prob == hparams.attention_probs_dropout_prob == 0.1
    assert hparams.max_seq_length == (512 if "squad" in task else 128)


def test_the_papers_grid():
    found = points(["cola"], **PAPER_GRID, warmup_proportion=[0.0, 0.1])["cola"]
    assert {swept["learning_rate"] for swept, _ in found} == {5e-5, 1e-4, 2e-4, 3e-4}
    settings = [setting_of(hparams, swept) for swept, hparams in found]
    names = {folder_name(of, init) for of in settings for init in ("pretrained", "random")}
    assert len(names) == 4 * 2 * 2 * 2 * 2
    # A sweep of one kind's hyper-parameter leaves other tasks alone.
    found = points(["cola", "squad"], doc_stride=[64, 128], learning_rate=[1e-4])
    assert [swept for swept, _ in found["cola"]] == [{"learning_rate": 1e-4}]
    both = [{"doc_stride": stride, "learning_rate": 1e-4} for stride in (64, 128)]
    assert [swept for swept, _ in found["squad"]] == both
    with rejects("`learning_rate`"):
        points(["cola"], learning_rate=[])


def test_the_longest_input_is_the_models():
    short = SMALL.replace(max_position_embeddings=256)
    assert resolve_hparams({}, TASKS["squad"], short).max_seq_length == 256
    shorter = SMALL.replace(max_position_embeddings=128)  # windows overlap less than `doc_stride`
    assert resolve_hparams({}, TASKS["squad"], shorter).max_seq_length == 128
    with pytest.raises(InputError):
        resolve_hparams({"max_seq_length": 257}, TASKS["squad"], short)


IMPOSSIBLE = {"learning_rate": float("inf"), "warmup_proportion": 2, "num_train_epochs": 0}
IMPOSSIBLE["double_unordered"] = False  # of another kind


@pytest.mark.parametrize(("name", "value"), IMPOSSIBLE.items())
def test_values_that_do_not_exist(name, value):
    with rejects(f"`{name}`"):
        resolve_hparams({name: value}, TASKS["squad"], SMALL)
