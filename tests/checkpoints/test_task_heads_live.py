"""Slow: transformers loads fine-tuned models with their heads, and we load its; equal outputs.

Needs `python -m pip install -r requirements-peers.txt -c constraints.txt` and a minute; without
these packages it is skipped and says so.
"""

from __future__ import annotations

import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import numpy as np
import pytest

from checkpoints import formats
from checkpoints.model_directory import Options
from finetune.load import load_fine_tuned
from finetune.objective import FineTuning
from tests.checkpoints.task_head_support import CASES, declaration, features, written

NEEDED = "needs requirements-peers.txt"
torch = pytest.importorskip("torch", reason=NEEDED)
transformers = pytest.importorskip("transformers", reason=NEEDED)

pytestmark = pytest.mark.slow  # see above for what it needs


def theirs(model, batch) -> dict[str, np.ndarray]:
    """What a model of transformers says of our features."""
    names = {"input_ids": "input_ids", "input_mask": "attention_mask"}
    names["segment_ids"] = "token_type_ids"
    given = {names[key]: torch.tensor(value, dtype=torch.long) for key, value in batch.items()}
    with torch.no_grad():
        found = model.eval()(**given)
    return {name: value.numpy() for name, value in found.items()}


def ours(objective: FineTuning, batch) -> dict[str, np.ndarray]:
    """The same of ours, in the form of theirs."""
    output, head = objective.encoder(batch), objective.head
    if hasattr(head, "start_logit"):  # without what keeps answers inside the context
        logits = (head.start_logit(output.sequence), head.end_logit(output.sequence))
        return {name: x.numpy()[..., 0] for name, x in zip(("start_logits", "end_logits"), logits)}
    tokens = type(head).__name__ == "TaggingHead"
    return {"logits": head(output.sequence if tokens else output.pooled).numpy()}


def scaled(case, found):
    """Scores as theirs are: in the unit of the labels, from 1 to 5."""
    scores = CASES[case].kind == "regression"
    return {name: 1.0 + 4.0 * value if scores else value for name, value in found.items()}


def assert_close(received, expected):
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_transformers_gives_our_outputs(tmp_path, case):
    objective, folder = written(tmp_path, case)
    model, info = getattr(transformers, CASES[case].architecture).from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    batch = features(objective.encoder.config.vocab_size)
    assert_close(scaled(case, ours(objective, batch)), theirs(model, batch))
    labels = declaration(case).get("labels")
    if labels:
        assert tuple(model.config.id2label.values()) == tuple(labels)


@pytest.mark.parametrize("case", CASES)
def test_a_model_of_transformers_gives_its_outputs_here(tmp_path, case):
    _, folder = written(tmp_path, case)  # the vocabulary and the shapes
    shapes = transformers.AutoConfig.from_pretrained(folder)
    torch.manual_seed(0)
    model = getattr(transformers, CASES[case].architecture)(shapes)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    task, output = tmp_path / "task.json", str(tmp_path / "ours")
    task.write_text(json.dumps(declaration(case)))
    formats.from_elsewhere("huggingface", str(folder), output, Options(task=str(task)))
    back = load_fine_tuned(output).objective
    batch = features(back.encoder.config.vocab_size)
    assert_close(scaled(case, ours(back, batch)), theirs(model, batch))


def test_the_pipeline_names_our_labels(tmp_path):
    _, folder = written(tmp_path, "convbert labels")
    ask = transformers.pipeline("text-classification", model=str(folder))
    assert ask("the city")[0]["label"] in declaration("convbert labels")["labels"]
