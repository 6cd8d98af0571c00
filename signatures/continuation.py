"""What a causal language model can be asked: to continue a text."""

from __future__ import annotations

import tensorflow as tf

from model import CausalLMHead, Encoder
from model.generation import Continuation, Generator, Sampling
from signatures.network import Network
from signatures.parts import TOKENS_PER_PART
from signatures.signature import TEXT, Signature, Tensors
from signatures.tensors import Tensor

_DEFAULT_TOKENS = 32


def continue_text(network: Network, encoder: Encoder, head: CausalLMHead) -> Signature:
    """Texts with what the model writes after them."""
    limit, vocabulary = network.model.max_seq_length, network.layout.vocabulary
    whole_words = vocabulary.tokenizer == "words"
    never = {vocabulary.pad_id, vocabulary.cls_id, vocabulary.mask_id} - {vocabulary.sep_id}
    generate = Generator(encoder, head, vocabulary.sep_id, tuple(sorted(never)))

    def function(text, *options):
        sampling = Sampling(*options)
        with tf.control_dependencies(_checks(sampling, limit)):
            sampling = Sampling(*map(tf.identity, options))
        # Texts of one seed draw by different numbers, or their continuations would be alike.
        of_text = tf.cast(tf.strings.to_hash_bucket_fast(text, 2**31 - 1), tf.int32)
        sampling = sampling._replace(seed=tf.bitwise.bitwise_xor(sampling.seed, of_text))
        ids, lengths, truncated = prompts(network, text, limit - sampling.num_tokens)
        return {**_in_parts(generate, ids, lengths, sampling, answer), "truncated": truncated}

    def answer(found: Continuation, lengths: tf.Tensor, N: tf.Tensor) -> Tensors:
        """The outputs of texts whose `lengths` are those of the prompts; N tokens wide."""
        counts = found.lengths - lengths
        places = tf.minimum(lengths[:, None] + tf.range(N), tf.shape(found.ids)[1] - 1)  # [B, N]
        added = tf.sequence_mask(counts, N)
        pieces = network.piece_names(tf.gather(found.ids, places, batch_dims=1))
        pieces = tf.where(added, pieces, "")
        log_probs = tf.gather(found.log_probs, places, batch_dims=1)
        words = tf.strings.strip(tf.strings.reduce_join(pieces, -1, separator=" "))
        return {
            "continuation": words if whole_words else tf.strings.regex_replace(words, " ##", ""),
            "pieces": pieces,
            "log_probs": tf.where(added, log_probs, 0.0),
            "num_pieces": counts,
        }

    outputs = {
        "continuation": Tensor("string", ("B",), "what the model writes, its pieces as words"),
        "pieces": Tensor("string", ("B", "S"), 'its tokens; "" after the last'),
        "log_probs": Tensor("float32", ("B", "S"), "theirs, of all pieces; 0 after the last"),
        "num_pieces": Tensor("int32", ("B",), "the number of `pieces`; less than asked at an end"),
        "truncated": Tensor("bool", ("B",), "whether the text was too long and lost its beginning"),
    }
    about = "what may follow a text, token by token"
    return Signature(about, function, {"text": TEXT, **_options(limit)}, outputs)


def _options(limit: int) -> dict[str, Tensor]:
    """The fields of `Sampling` as inputs."""
    length = min(_DEFAULT_TOKENS, limit // 2)
    return {
        "num_tokens": Tensor(
            "int32", ("B",), f"the most pieces to write, 1 to {limit - 1}", length
        ),
        "temperature": Tensor("float32", ("B",), "of the softmax; 0: the most probable piece", 1.0),
        "top_k": Tensor("int32", ("B",), "draws from the k most probable pieces; 0: from all", 0),
        "top_p": Tensor("float32", ("B",), "draws from those of this probability together", 1.0),
        "seed": Tensor("int32", ("B",), "of the draws: the same again for the same text", 0),
    }


def _checks(sampling: Sampling, limit: int) -> list[tf.Operation]:
    """What fails, by name, where options are out of range."""
    number, share = sampling.num_tokens, sampling.top_p
    rules = {
        f"`num_tokens` should be in [1, {limit - 1}].": (number >= 1) & (number < limit),
        "`temperature` should be finite and at least 0.": (
            tf.math.is_finite(sampling.temperature) & (sampling.temperature >= 0.0)
        ),
        "`top_k` should be at least 0.": sampling.top_k >= 0,
        "`top_p` should be in (0, 1].": (share > 0.0) & (share <= 1.0),
    }
    return [tf.debugging.Assert(tf.reduce_all(holds), [rule]) for rule, holds in rules.items()]


def prompts(
    network: Network, text: tf.Tensor, budgets: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """[CLS] and the last pieces of texts: int32 [B, P], lengths [B], whether pieces were cut off.

    Args:
        text: string [B].
        budgets: int32 [B], the maximum lengths, at least 1.
    """
    pieces = network.layout.tokenize(text)
    full = tf.cast(pieces.row_lengths(), tf.int32)
    kept = tf.minimum(full, budgets - len(network.layout.frame.begin))
    starts = tf.cast(pieces.row_starts(), tf.int32) + full - kept
    last = tf.gather(pieces.values, tf.ragged.range(starts, starts + kept))
    begin = tf.constant([network.layout.frame.begin], tf.int32)
    ids = tf.concat([tf.tile(begin, [tf.shape(text)[0], 1]), last], 1)
    return ids.to_tensor(), tf.cast(ids.row_lengths(), tf.int32), kept < full


def _in_parts(generate: Generator, ids, lengths, sampling: Sampling, answer) -> Tensors:
    """The answers to any number of texts, computed some at a time, so that memory is bounded."""
    B, N = tf.size(lengths), tf.reduce_max(tf.concat([[0], sampling.num_tokens], 0))
    widest = tf.maximum(tf.shape(ids)[1] + N, 1)
    size = tf.maximum(1, TOKENS_PER_PART // widest)
    axes = {"continuation": (tf.string, 1), "pieces": (tf.string, 2)}
    axes |= {"log_probs": (tf.float32, 2), "num_pieces": (tf.int32, 1)}
    options = {"size": 0, "dynamic_size": True, "infer_shape": False}
    arrays = {
        name: tf.TensorArray(dtype, element_shape=[None] * rank, **options)
        for name, (dtype, rank) in axes.items()
    }

    def step(number, start, found):
        part = slice(start, start + size)
        chosen = Sampling(*(option[part] for option in sampling))
        outputs = answer(generate(ids[part], lengths[part], chosen), lengths[part], N)
        found = {name: found[name].write(number, outputs[name]) for name in axes}
        return number + 1, start + size, found

    def all_parts():
        first = (0, 0, arrays)
        _, _, found = tf.while_loop(lambda _, start, __: start < B, step, first, None, 1)
        return {name: array.concat() for name, array in found.items()}

    none = {name: tf.zeros([0] * rank, dtype) for name, (dtype, rank) in axes.items()}
    return tf.cond(B > 0, all_parts, lambda: none)
