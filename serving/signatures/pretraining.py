"""Signatures of pre-trained models: embeddings, replaced tokens, masked tokens, scores."""

from __future__ import annotations

import tensorflow as tf

from convbert.common.settings import present
from convbert.data.text.layout import take
from convbert.pretrain.objectives.base import MASKED_TOKENS, REPLACED_TOKENS
from convbert.serving.signatures.continuation import continue_text
from convbert.serving.signatures.network import SCORE, Network, token_ids
from convbert.serving.signatures.parts import TOKENS_PER_PART, InParts
from convbert.serving.signatures.scoring import score
from convbert.serving.signatures.signature import TEXT, TRUNCATED, Signature, Tensor, Tensors

_LOGITS_PER_PART = 2**26  # 256 MiB in float32
_PIECES = {
    "pieces": Tensor("string", "BS"),
    "num_pieces": Tensor("int32", "B"),
    "truncated": TRUNCATED,
}
_TOKEN_VECTORS = {
    "pooled": Tensor("float32", "BD"),
    "mean": Tensor("float32", "BD"),
    "tokens": Tensor("float32", "BSD"),
}


def signatures(network: Network) -> dict[str, Signature]:
    """Returns the signatures that the model supports; `serving_default` is `embeddings`."""
    found = {"serving_default": embeddings(network)}
    outputs, functions = dict(_TOKEN_VECTORS), network.model.functions
    replaced = REPLACED_TOKENS.function in functions
    if replaced:
        outputs["replaced"] = Tensor("float32", "BS")
    for offer, networks in network.model.offers.items():
        if offer.function is None or offer.function in functions:
            found[offer.name] = (offer.build or _BUILDERS[offer.name])(network, *networks)
    if SCORE in functions:
        found["score"] = score(network)

    def vectors_and_replaced(part: Tensors) -> Tensors:
        answers = _vectors(network, part)
        if replaced:
            answers["replaced"] = _probabilities(network, part)
        return answers

    return {**found, "token_ids": token_ids(network, InParts(vectors_and_replaced), outputs)}


def embeddings(network: Network) -> Signature:
    """Returns the signature of vectors of single texts, which every model supports."""

    vectors_of = InParts(lambda part: _vectors(network, part))

    def function(text):
        sequences = network.layout.single(text)
        features = network.features(sequences.ids, sequences.segment_ids)
        S = tf.shape(features["input_ids"])[1]
        return {
            **vectors_of(features, network.lengths(features), {"tokens": S}),
            **network.pieces(sequences, features),
        }

    outputs = {**_TOKEN_VECTORS, **_PIECES}
    return Signature("vectors of a text and of its word pieces", function, {"text": TEXT}, outputs)


def _vectors(network: Network, features: Tensors) -> Tensors:
    """Returns `pooled`, `mean` and `tokens` of sequences."""
    mask = tf.cast(features["input_mask"], tf.float32)[..., None]  # [B, S, 1]
    output = network.encode(features)
    tokens, pooled = (tf.cast(part, tf.float32) for part in (output.sequence, output.pooled))
    total = tf.reduce_sum(tokens * mask, 1)
    mean = total / tf.maximum(tf.reduce_sum(mask, 1), 1.0)
    return {"pooled": pooled, "mean": mean, "tokens": tokens * mask}


def replaced_tokens(network: Network, *_: tf.Module) -> Signature:
    """Returns the signature that predicts whether each word piece was replaced."""

    probabilities_of = InParts(lambda part: {"shares": _probabilities(network, part)})

    def function(text):
        sequences = network.layout.single(text)
        features = network.features(sequences.ids, sequences.segment_ids)
        mask = tf.cast(features["input_mask"], tf.float32)  # [B, S]
        lengths, widths = network.lengths(features), {"shares": tf.shape(mask)[1]}
        probabilities = probabilities_of(features, lengths, widths)["shares"]
        return {"probabilities": probabilities * mask, **network.pieces(sequences, features)}

    outputs = {
        **_PIECES,
        "probabilities": Tensor("float32", "BS"),
    }
    about = "of each word piece of a text, how probable it is that another stood there"
    return Signature(about, function, {"text": TEXT}, outputs)


def _probabilities(network: Network, features: Tensors) -> tf.Tensor:
    logits = network.compute(present(REPLACED_TOKENS.function), features)["logits"]
    return tf.sigmoid(logits)  # [B, S]


def masked_tokens(network: Network, *_: tf.Module) -> Signature:
    """Returns the signature that predicts word pieces for each mask."""
    layout, mask_id = network.layout, network.layout.vocabulary.mask_id
    mask_token = layout.vocabulary.tokens[mask_id]  # as it is written in texts
    V = network.model.config.vocab_size

    def places(ids):
        """Returns the positions of masks in int32 [B, S]: [B, (M)]."""
        positions = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        return tf.ragged.boolean_mask(positions, ids == mask_id)

    def candidates_of(part):
        positions = places(part["input_ids"]).to_tensor()  # [n, M]
        return network.compute(MASKED_TOKENS.function, {**part, "positions": positions})

    # Otherwise texts of only masks would fill the memory with logits.
    in_parts = InParts(candidates_of, min(TOKENS_PER_PART, _LOGITS_PER_PART // V))

    def function(text):
        sequences = layout.single_ids(masked_pieces(text))
        features = network.features(sequences.ids, sequences.segment_ids)
        masks = places(features["input_ids"]).row_lengths()
        M = tf.reduce_max(tf.concat([[0], tf.cast(masks, tf.int32)], 0))
        widths = {"shares": M, "candidates": M}
        found = in_parts(features, network.lengths(features), widths)
        is_mask = tf.sequence_mask(masks, M)[..., None]  # [B, M, 1]
        return {
            "candidates": tf.where(is_mask, network.piece_names(found["candidates"]), ""),
            "probabilities": tf.where(is_mask, found["shares"], 0.0),
            "num_masks": tf.cast(masks, tf.int32),
            "truncated": sequences.truncated,
        }

    def masked_pieces(text):
        """Tokenizes texts to int32 [B, (n)], with [MASK] as a piece."""
        if not layout.tokenizer.in_graph:  # it finds [MASK] itself
            return layout.tokenizer.tokenize_ragged(text)
        parts = tf.strings.split(text, mask_token)  # [B, (parts)], one more than masks
        pieces = layout.tokenizer.tokenize_ragged(parts.values)
        mask = tf.fill([pieces.nrows(), 1], mask_id)
        joined = parts.with_values(tf.concat([pieces, mask], 1)).merge_dims(1, 2)
        return take(joined, joined.row_lengths() - 1)

    outputs = {
        "candidates": Tensor("string", "BMK"),
        "probabilities": Tensor("float32", "BMK"),
        "num_masks": Tensor("int32", "B"),
        "truncated": TRUNCATED,
    }
    about = f"what may stand in the places of a text that are marked {mask_token}"
    return Signature(about, function, {"text": TEXT}, outputs)


IN_LITERT = (REPLACED_TOKENS, MASKED_TOKENS)  # rebuilt from a file's functions
_BUILDERS = {
    "replaced_tokens": replaced_tokens,
    "masked_tokens": masked_tokens,
    "continue_text": continue_text,
}
