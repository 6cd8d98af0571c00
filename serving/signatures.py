"""The signatures that a model has the networks for."""

from __future__ import annotations

from serving.load import ServedModel
from signatures.embeddings import embeddings
from signatures.functions import Function
from signatures.network import Network
from signatures.pretraining import signatures as pretraining
from signatures.signature import Signature


def signatures(
    model: ServedModel, functions: dict[str, Function] | None = None
) -> dict[str, Signature]:
    """Every signature of a model by name, `serving_default` first.

    All models have `serving_default`, `embeddings` and `token_ids`; see docs/serving.md.
    `functions` are by default those of the model's networks.
    """
    network = Network(model, functions)
    of_kind = model.task.plugin.signatures if model.task else pretraining
    return {**of_kind(network), "embeddings": embeddings(network)}
