"""XLNet of Hugging Face's transformers, at our sizes. Imports torch, not TensorFlow.

See benchmarks/huggingface.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import XLNetConfig, XLNetForSequenceClassification, XLNetModel

from benchmarks.huggingface import _autocast, _facts, _random_ids, _training_steps


def inference(
    fields: dict[str, Any], batch: int, length: int, precision: str = "float32"
) -> Callable[[], np.ndarray]:
    """The encoder's forward pass over a full batch (no padding)."""
    torch.manual_seed(0)
    model = XLNetModel(_config(fields)).eval()
    ids = _random_ids(batch, length, fields["vocab_size"])
    inputs = {"attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}

    @torch.inference_mode()
    def run():
        with _autocast(precision):
            return model(ids, **inputs, use_mems=False).last_hidden_state.float().numpy()

    run.facts = _facts(model, model)
    return run


def classification_step(
    fields: dict[str, Any], batch: int, length: int, precision: str = "float32"
) -> Callable[[], float]:
    """A step of fine-tuning for two classes, input apart; returns the loss."""
    torch.manual_seed(0)
    model = _Classifier(_config(fields), torch.arange(batch) % 2)
    ids = _random_ids(batch, length, fields["vocab_size"])
    run = _training_steps(model, ids, precision)
    run.facts = _facts(model, model.model)
    return run


class _Classifier(torch.nn.Module):
    """The loss of sequence classification, for ids without padding."""

    def __init__(self, config: XLNetConfig, labels: torch.Tensor):
        super().__init__()
        self.model, self.labels = XLNetForSequenceClassification(config), labels

    def forward(self, ids):
        inputs = {"attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
        return self.model(ids, **inputs, labels=self.labels, use_mems=False).loss


def _config(fields: dict[str, Any]) -> XLNetConfig:
    return XLNetConfig(
        vocab_size=fields["vocab_size"],
        d_model=fields["hidden_size"],
        n_layer=fields["num_hidden_layers"],
        n_head=fields["num_attention_heads"],
        d_inner=fields["intermediate_size"],
        dropout=fields["hidden_dropout_prob"],
        summary_last_dropout=fields["hidden_dropout_prob"],
        num_labels=2,
    )
