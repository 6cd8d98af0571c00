"""Signatures of pre-trained models: embeddings, replaced tokens, masked tokens, continuations."""

from __future__ import annotations

import tensorflow as tf

from convbert.common.settings import present
from convbert.data.text.layout import last, take
from convbert.data.vocabulary import texts_of_bytes
from convbert.model import CausalLMHead, Encoder
from convbert.model.generation import Sampling, TextGenerator
from convbert.pretrain.objectives.base import MASKED_TOKENS, REPLACED_TOKENS
from convbert.serving.signatures.network import ENCODE, SCORE, Network, token_ids
from convbert.serving.signatures.parts import TOKENS_PER_PART, InParts
from convbert.serving.signatures.scoring import score
from convbert.serving.signatures.signature import (
    TEXT,
    TRUNCATED,
    Signature,
    Tensor,
    Tensors,
    valid_utf8,
)

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
_DEFAULT_TOKENS = 32  # of a continuation
_SAMPLING = {
    "temperature": Tensor("float32", "B", 1.0),
    "top_k": Tensor("int32", "B", 0),
    "seed": Tensor("int32", "B", 0),
}
_WRITTEN = {
    "continuation": Tensor("string", "B"),
    "pieces": Tensor("string", "BS"),
    "log_probs": Tensor("float32", "BS"),
    "num_pieces": Tensor("int32", "B"),
}
_PROMPTS = {
    "input_ids": tf.TensorSpec([None, None], tf.int32),
    **{name: tf.TensorSpec([None], tf.int32) for name in ("lengths", *Sampling._fields)},
    "temperature": tf.TensorSpec([None], tf.float32),
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
    output = network.compute(ENCODE, features)
    tokens, pooled = (tf.cast(output[name], tf.float32) for name in ("sequence", "pooled"))
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

    outputs = {**_PIECES, "probabilities": Tensor("float32", "BS")}
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


def continue_text(network: Network, encoder: Encoder, head: CausalLMHead) -> Signature:
    """Returns the signature that continues texts."""
    limit, vocabulary = network.model.max_seq_length, network.layout.vocabulary
    whole_words = vocabulary.tokenizer == "words"
    texts = texts_of_bytes(vocabulary.tokens) if vocabulary.tokenizer == "bpe" else None
    never = {vocabulary.pad_id, vocabulary.cls_id, vocabulary.mask_id} - {vocabulary.sep_id}
    generate = TextGenerator(encoder, head, vocabulary.sep_id, tuple(sorted(never)))

    def function(text, *options):
        sampling = Sampling(*options)
        with tf.control_dependencies(_option_checks(sampling, limit)):
            sampling = Sampling(*map(tf.identity, options))
        # Texts with the same seed draw different numbers, or their continuations would be alike.
        of_text = tf.cast(tf.strings.to_hash_bucket_fast(text, 2**31 - 1), tf.int32)
        sampling = sampling._replace(seed=tf.bitwise.bitwise_xor(sampling.seed, of_text))
        ids, lengths, truncated = prompts(network, text, limit - sampling.num_tokens)
        N = tf.reduce_max(tf.concat([[0], sampling.num_tokens], 0))
        features = {"input_ids": ids, "lengths": lengths, **sampling._asdict()}
        widths = {"pieces": N, "log_probs": N}
        found = tf.cond(
            tf.size(text) > 0,
            lambda: in_parts(features, lengths + sampling.num_tokens, widths),
            lambda: {n: tf.zeros([0] * len(own.axes), own.dtype) for n, own in _WRITTEN.items()},
        )
        return {**found, "truncated": truncated}

    def written(part: Tensors) -> Tensors:
        """Returns the outputs `_WRITTEN` for at least one prompt, N tokens wide."""
        lengths, sampling = part["lengths"], Sampling(*(part[n] for n in Sampling._fields))
        found = generate(part["input_ids"][:, : tf.reduce_max(lengths)], lengths, sampling)
        N, counts = tf.reduce_max(sampling.num_tokens), found.lengths - lengths
        places = tf.minimum(lengths[:, None] + tf.range(N), tf.shape(found.ids)[1] - 1)  # [B, N]
        added = tf.sequence_mask(counts, N)
        ids = tf.gather(found.ids, places, batch_dims=1)
        pieces = network.piece_names(ids)
        pieces = tf.where(added, pieces, "")
        log_probs = tf.gather(found.log_probs, places, batch_dims=1)
        if texts is None:
            words = tf.strings.strip(tf.strings.reduce_join(pieces, -1, separator=" "))
            words = words if whole_words else tf.strings.regex_replace(words, " ##", "")
        else:
            pieces_bytes = tf.where(added, tf.gather(tf.constant(texts), ids), b"")
            words = tf.strings.strip(valid_utf8(tf.strings.reduce_join(pieces_bytes, -1)))
        return {
            "continuation": words,
            "pieces": pieces,
            "log_probs": tf.where(added, log_probs, 0.0),
            "num_pieces": counts,
        }

    about = "what may follow a text, token by token"
    in_parts = InParts(written, inputs=_PROMPTS)
    num_tokens = Tensor("int32", "B", min(_DEFAULT_TOKENS, limit // 2))
    inputs = {"text": TEXT, "num_tokens": num_tokens, **_SAMPLING}
    return Signature(about, function, inputs, {**_WRITTEN, "truncated": TRUNCATED})


def _option_checks(sampling: Sampling, limit: int) -> list[tf.Operation]:
    """Returns assertions that options are in range, with their rules as messages."""
    number = sampling.num_tokens
    rules = {
        f"`num_tokens` should be in [1, {limit - 1}].": (number >= 1) & (number < limit),
        "`temperature` should be finite and at least 0.": (
            tf.math.is_finite(sampling.temperature) & (sampling.temperature >= 0.0)
        ),
        "`top_k` should be at least 0.": sampling.top_k >= 0,
    }
    return [tf.debugging.Assert(tf.reduce_all(holds), [rule]) for rule, holds in rules.items()]


def prompts(
    network: Network, text: tf.Tensor, budgets: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns [CLS] and texts' last pieces, int32 [B, P], lengths [B], and True if truncated.

    `budgets` int32 [B] are the maximum lengths.
    """
    pieces = network.layout.tokenize(text)
    full = pieces.row_lengths()
    kept = tf.minimum(full, tf.cast(budgets, tf.int64) - len(network.layout.frame.begin))
    begin = tf.constant([network.layout.frame.begin], tf.int32)
    ids = tf.concat([tf.tile(begin, [tf.shape(text)[0], 1]), last(pieces, kept)], 1)
    return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32), kept < full


IN_LITERT = (REPLACED_TOKENS, MASKED_TOKENS)  # rebuilt from a file's functions
_BUILDERS = {
    "replaced_tokens": replaced_tokens,
    "masked_tokens": masked_tokens,
    "continue_text": continue_text,
}
