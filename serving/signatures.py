"""The signatures that a model has the networks for."""

from __future__ import annotations

import importlib

from serving.embeddings import embeddings
from serving.load import PRETRAINING, ServedModel
from serving.network import Network
from serving.signature import Signature

# Kind -> "module:function", from a Network to its signatures but for `embeddings`.
_KINDS = {
    "classification": "serving.classification:signatures",
    "regression": "serving.regression:signatures",
    "tagging": "serving.tagging:signatures",
    "span": "serving.spans:signatures",
    PRETRAINING: "serving.pretraining:signatures",
}


def signatures(model: ServedModel) -> dict[str, Signature]:
    """Every signature of a model by name, `serving_default` first.

    All models have `serving_default`, `embeddings` and `token_ids`; see docs/serving.md.
    """
    network = Network(model)
    module, function = _KINDS[model.kind].split(":")
    of_kind = getattr(importlib.import_module(module), function)
    return {**of_kind(network), "embeddings": embeddings(network)}
