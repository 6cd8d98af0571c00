"""The signatures that a model has the networks for."""

from __future__ import annotations

from serving.classification import classification, regression
from serving.embeddings import embeddings
from serving.load import PRETRAINING, ServedModel
from serving.network import Network
from serving.pretraining import pretraining
from serving.signature import Signature
from serving.spans import spans
from serving.tagging import tagging

_KINDS = {
    "classification": classification,
    "regression": regression,
    "tagging": tagging,
    "span": spans,
    PRETRAINING: pretraining,
}


def signatures(model: ServedModel) -> dict[str, Signature]:
    """Every signature of a model by name, `serving_default` first.

    All models have `serving_default`, `embeddings` and `token_ids`; see docs/serving.md.
    """
    network = Network(model)
    return {**_KINDS[model.kind](network), "embeddings": embeddings(network)}
