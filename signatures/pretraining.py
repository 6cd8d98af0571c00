"""What a pre-trained model can be asked: vectors, replaced tokens, masked tokens, scores."""

from __future__ import annotations

import tensorflow as tf

from signatures.continuation import continue_text
from signatures.embeddings import TOKEN_VECTORS, embeddings, vectors
from signatures.functions import FEATURES, SCORE, Offer
from signatures.network import Network, token_ids
from signatures.parts import TOKENS_PER_PART, InParts
from signatures.scoring import score
from signatures.signature import NUM_PIECES, PIECES, TEXT, TRUNCATED, Signature, Tensors
from signatures.tensors import Tensor
from text.ragged import take

REPLACED, MASKED = "replaced", "masked"  # functions of token ids
NUM_CANDIDATES = 10
_LOGITS_PER_PART = 2**26  # 256 MiB in float32


def signatures(network: Network) -> dict[str, Signature]:
    """The signatures that the model has the networks for; `serving_default` is `embeddings`."""
    found = {"serving_default": embeddings(network)}
    outputs, replaced = dict(TOKEN_VECTORS), REPLACED in network.functions
    if replaced:
        about = "the probability that a token was replaced"
        outputs["replaced"] = Tensor("float32", ("B", "S"), about)
    for offer, networks in network.model.offers.items():
        if offer.function is None or offer.function in network.functions:
            found[offer.name] = offer.build(network, *networks)
    if SCORE in network.functions:
        found["score"] = score(network)

    def vectors_and_replaced(part: Tensors) -> Tensors:
        answers = vectors(network, part)
        if replaced:
            answers["replaced"] = _probabilities(network, part)
        return answers

    raw = token_ids(
        network, "vectors of a sequence of token ids", InParts(vectors_and_replaced), outputs
    )
    return {**found, "token_ids": raw}


def replaced_tokens(network: Network, *_: tf.Module) -> Signature:
    """Of each word piece, whether a discriminator or self-critic takes it for replaced."""

    probabilities_of = InParts(lambda part: {"shares": _probabilities(network, part)})

    def function(text):
        sequences = network.layout.single(text)
        features = network.features(sequences.ids, sequences.segment_ids)
        mask = tf.cast(features["input_mask"], tf.float32)  # [B, S]
        lengths, widths = network.lengths(features), {"shares": tf.shape(mask)[1]}
        probabilities = probabilities_of(features, lengths, widths)["shares"]
        return {"probabilities": probabilities * mask, **network.pieces(sequences, features)}

    outputs = {
        "pieces": PIECES,
        "probabilities": Tensor("float32", ("B", "S"), "that the piece was replaced; 0 at padding"),
        "num_pieces": NUM_PIECES,
        "truncated": TRUNCATED,
    }
    about = "of each word piece of a text, how probable it is that another stood there"
    return Signature(about, function, {"text": TEXT}, outputs)


def _probabilities(network: Network, features: Tensors) -> tf.Tensor:
    return tf.sigmoid(network.compute(REPLACED, features)["logits"])  # [B, S]


def masked_tokens(network: Network, *_: tf.Module) -> Signature:
    """The word pieces that a masked language model would put in the place of each mask."""
    layout, mask_id = network.layout, network.layout.vocabulary.mask_id
    mask_token = layout.vocabulary.tokens[mask_id]  # as it is written in texts
    V = network.model.config.vocab_size
    K = min(NUM_CANDIDATES, layout.vocabulary.size)

    def places(ids):
        """The positions of the masks, [B, (M)], of int32 [B, S]."""
        positions = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
        return tf.ragged.boolean_mask(positions, ids == mask_id)

    def candidates_of(part):
        positions = places(part["input_ids"]).to_tensor()  # [n, M]
        return network.compute(MASKED, {**part, "positions": positions})

    # Or texts of nothing but masks would fill the memory with logits.
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
        """Word pieces of texts, int32 [B, (n)], in which [MASK] is a piece of its own."""
        parts = tf.strings.split(text, mask_token)  # [B, (parts)], one more than masks
        pieces = layout.tokenizer.tokenize_ragged(parts.values)
        mask = tf.fill([pieces.nrows(), 1], mask_id)
        joined = parts.with_values(tf.concat([pieces, mask], 1)).merge_dims(1, 2)
        return take(joined, joined.row_lengths() - 1)

    outputs = {
        "candidates": Tensor(
            "string",
            ("B", "M", "K"),
            f"the {K} most probable pieces for each {mask_token}, best first;"
            ' "" after the last mask',
        ),
        "probabilities": Tensor("float32", ("B", "M", "K"), "theirs"),
        "num_masks": Tensor("int32", ("B",), f"how many {mask_token} there are"),
        "truncated": TRUNCATED.but("; what was cut off may have held masks"),
    }
    about = f"what may stand in the places of a text that are marked {mask_token}"
    return Signature(about, function, {"text": TEXT.but(f", with {mask_token} in it")}, outputs)


def _replaced_logits(features, encode, head) -> Tensors:
    """`logits` [n, S] of "was replaced", by a discriminator or by a masked language model."""
    logits = getattr(head, "replaced_logits", head)
    return {"logits": logits(encode(features).sequence)}


def _candidates(features, encode, head) -> Tensors:
    """Of the masks at `positions`, the most probable `candidates` int32 [n, M, K]; `shares`."""
    logits = head(encode(features).sequence, features["positions"])  # [n, M, V]
    shares, ids = tf.math.top_k(tf.nn.softmax(logits), min(NUM_CANDIDATES, logits.shape[-1]))
    return {"shares": shares, "candidates": ids}


# What the project's objectives offer, of an encoder and a head.
_OF_HEAD = ("encoder", "head")
REPLACED_TOKENS = Offer("replaced_tokens", _OF_HEAD, replaced_tokens, REPLACED, _replaced_logits)
MASKED_TOKENS = Offer(
    "masked_tokens", _OF_HEAD, masked_tokens, MASKED, _candidates, (*FEATURES, "positions")
)
CONTINUE_TEXT = Offer("continue_text", _OF_HEAD, continue_text)
IN_LITERT = (REPLACED_TOKENS, MASKED_TOKENS)  # are found again by the functions of a file
