"""The signature `continue_text` of causal language models."""

from __future__ import annotations

import tensorflow as tf

from convbert.data.vocabulary import texts_of_bytes
from convbert.model import CausalLMHead, Encoder
from convbert.model.generation import Sampling, TextGenerator
from convbert.serving.signatures.network import Network
from convbert.serving.signatures.parts import InParts
from convbert.serving.signatures.signature import (
    TEXT,
    TRUNCATED,
    Signature,
    Tensor,
    Tensors,
    valid_utf8,
)

_DEFAULT_TOKENS = 32
_WRITTEN = ("continuation", "pieces", "log_probs", "num_pieces")
_INPUTS = {
    "input_ids": tf.TensorSpec([None, None], tf.int32),
    **{name: tf.TensorSpec([None], tf.int32) for name in ("lengths", *Sampling._fields)},
    "temperature": tf.TensorSpec([None], tf.float32),
}


def continue_text(network: Network, encoder: Encoder, head: CausalLMHead) -> Signature:
    """Returns the signature that continues texts."""
    limit, vocabulary = network.model.max_seq_length, network.layout.vocabulary
    whole_words = vocabulary.tokenizer == "words"
    texts = texts_of_bytes(vocabulary.tokens) if vocabulary.tokenizer == "bpe" else None
    never = {vocabulary.pad_id, vocabulary.cls_id, vocabulary.mask_id} - {vocabulary.sep_id}
    generate = TextGenerator(encoder, head, vocabulary.sep_id, tuple(sorted(never)))

    def function(text, *options):
        sampling = Sampling(*options)
        with tf.control_dependencies(_checks(sampling, limit)):
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
            lambda: {n: tf.zeros([0] * len(outputs[n].axes), outputs[n].dtype) for n in _WRITTEN},
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

    outputs = {
        "continuation": Tensor("string", "B"),
        "pieces": Tensor("string", "BS"),
        "log_probs": Tensor("float32", "BS"),
        "num_pieces": Tensor("int32", "B"),
        "truncated": TRUNCATED,
    }
    about = "what may follow a text, token by token"
    in_parts = InParts(written, inputs=_INPUTS)
    return Signature(about, function, {"text": TEXT, **_options(limit)}, outputs)


def _options(limit: int) -> dict[str, Tensor]:
    """Returns the fields of `Sampling` as inputs."""
    length = min(_DEFAULT_TOKENS, limit // 2)
    return {
        "num_tokens": Tensor("int32", "B", length),
        "temperature": Tensor("float32", "B", 1.0),
        "top_k": Tensor("int32", "B", 0),
        "seed": Tensor("int32", "B", 0),
    }


def _checks(sampling: Sampling, limit: int) -> list[tf.Operation]:
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
    full = tf.cast(pieces.row_lengths(), tf.int32)
    kept = tf.minimum(full, budgets - len(network.layout.frame.begin))
    starts = tf.cast(pieces.row_starts(), tf.int32) + full - kept
    last = tf.gather(pieces.values, tf.ragged.range(starts, starts + kept))
    begin = tf.constant([network.layout.frame.begin], tf.int32)
    ids = tf.concat([tf.tile(begin, [tf.shape(text)[0], 1]), last], 1)
    return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32), kept < full
