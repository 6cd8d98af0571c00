"""Properties of the whole encoder, its activations, and its configuration."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from convbert.common.errors import InputError
from convbert.model import DiscriminatorHead, MaskedLMHead, build_backbone, load_config
from convbert.model.config import TOKEN_MIXERS
from convbert.model.encoder import EncoderLayer
from convbert.model.layers import LayerNorm, dense, dropout, look_up
from tests import model_support
from tests.finetune.kinds_support import rejects
from tests.model_support import MIXERS, TINY, build_tiny, normal, random_features, randomize

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def pad(features: dict, amount: int) -> dict:
    return {name: np.pad(value, [[0, 0], [0, amount]]) for name, value in features.items()}


def test_output_shapes():
    """Kernels are those that the mixed tokens were made with, one for each head."""
    B, S, D, K, features = 3, 7, 16, TINY.conv_kernel_size, random_features(3, 7)
    output = build_tiny()(features, output_attentions=True, output_kernels=True)
    assert output.sequence.shape == output.embedding_output.shape == (B, S, D)
    np.testing.assert_array_equal(output.pooled, output.sequence[:, 0])
    np.testing.assert_array_equal(output.hidden_states[-1], output.sequence)
    for found, shape in (
        (output.hidden_states, (B, S, D)),
        (output.attention_probs, (B, 2, S, S)),  # N' = 4 / 2
        (output.conv_kernels, (B, S, 2, K)),
    ):
        assert [tensor.shape for tensor in found] == [shape] * 2
    for sums_to_one in (output.attention_probs[0], output.conv_kernels[0]):
        np.testing.assert_allclose(tf.reduce_sum(sums_to_one, -1), 1.0, atol=1e-5)
    assert np.ptp(output.conv_kernels[0][0, :, 0, 0]) > 1e-3  # they differ between tokens
    features["segment_ids"][:] = 0
    unasked = build_tiny()(features)
    by_default = build_tiny()({"input_ids": features["input_ids"]})
    np.testing.assert_array_equal(by_default.sequence, unasked.sequence)
    assert unasked.attention_probs == unasked.conv_kernels == ()
    for changes in ({"token_mixer": "attention"}, {"convolution": "static"}):
        assert build_tiny(**changes)(features, output_kernels=True).conv_kernels == ()


@pytest.mark.parametrize(("token_mixer", "convolution"), MIXERS)
def test_padding_changes_nothing(token_mixer, convolution):
    encoder = build_tiny(token_mixer=token_mixer, convolution=convolution)
    features = random_features(2, 9, lengths=[9, 6])
    real = features["input_mask"].astype(bool)
    expected = encoder(features).sequence.numpy()[real]
    for amount in (1, 3, 30):
        output = encoder(pad(features, amount)).sequence.numpy()[:, :9][real]
        np.testing.assert_allclose(output, expected, atol=1e-5)


@pytest.mark.parametrize("token_mixer", TOKEN_MIXERS)
def test_share_layers(token_mixer):
    shared = build_tiny(token_mixer=token_mixer, share_layers=True, num_hidden_layers=3)
    plain = build_tiny(token_mixer=token_mixer, num_hidden_layers=3)
    assert len(shared.encoder_layers) == 1
    plain.embeddings.set_weights(shared.embeddings.get_weights())
    plain.embeddings_project.set_weights(shared.embeddings_project.get_weights())
    for layer in plain.encoder_layers:
        layer.set_weights(shared.encoder_layers[0].get_weights())
    features = random_features(2, 7)
    output, expected = shared(features), plain(features)
    assert len(output.hidden_states) == 3
    np.testing.assert_allclose(output.sequence, expected.sequence, atol=1e-5)


@pytest.mark.bfloat16
def test_dropout_rate_in_bfloat16():
    """A uniform drawn in bfloat16 has 128 values and drops 13 of them: 0.1016."""
    ones = tf.ones([2000, 1000], tf.bfloat16)
    output = tf.cast(dropout(ones, 0.1, tf.constant([3, 4])), tf.float32).numpy()
    dropped = (output == 0.0).mean()
    assert dropped == pytest.approx(0.1, abs=8e-4)  # four standard deviations
    np.testing.assert_allclose(output[output != 0.0], 1 / 0.9, rtol=5e-3)


def test_dropout_is_a_function_of_the_seed():
    encoder, features = build_tiny(), random_features(2, 7)

    def sequence(seed, training=True):
        return encoder(features, training=training, seed=seed).sequence.numpy()

    first, second = tf.constant([1, 2]), tf.constant([1, 3])
    np.testing.assert_array_equal(sequence(first), sequence(first))
    assert np.abs(sequence(first) - sequence(second)).max() > 1e-2
    assert np.abs(sequence(first) - sequence(None, training=False)).max() > 1e-2
    np.testing.assert_array_equal(sequence(first, training=False), sequence(None, training=False))

    def unseeded(global_seed):
        tf.random.set_seed(global_seed)
        return sequence(None)

    np.testing.assert_array_equal(unseeded(5), unseeded(5))
    assert np.abs(unseeded(5) - sequence(None)).max() > 1e-2


@pytest.mark.parametrize("which", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_each_dropout_rate_is_used(which):
    features, seed = random_features(2, 7), tf.constant([1, 2])
    encoder = build_tiny(**{**NO_DROPOUT, which: 0.5})
    with_dropout = encoder(features, training=True, seed=seed).sequence
    assert np.abs(with_dropout - encoder(features).sequence).max() > 1e-2
    none = build_tiny(**NO_DROPOUT)
    found, expected = none(features, training=True, seed=seed), none(features)
    # Two code paths, which round alike on some CPUs only.
    np.testing.assert_allclose(found.sequence, expected.sequence, atol=1e-6)


def test_xla_equals_plain():
    """A training step's forward and backward pass, with the same dropout for any seed."""
    encoder = build_tiny(linear_groups=2, num_hidden_layers=1)
    features = {name: tf.constant(v) for name, v in random_features(2, 8, lengths=[8, 5]).items()}
    weights, seed = normal(2, 8, 16), tf.constant([-1, 2])

    def step(features):
        with tf.GradientTape() as tape:
            sequence = encoder(features, training=True, seed=seed).sequence
            loss = tf.reduce_sum(sequence * weights)
        gradients = tape.gradient(loss, encoder.trainable_variables)
        return sequence, [tf.convert_to_tensor(gradient) for gradient in gradients]

    sequence, gradients = step(features)
    compiled_sequence, compiled_gradients = tf.function(step, jit_compile=True)(features)
    np.testing.assert_allclose(compiled_sequence, sequence, atol=1e-5)
    for compiled, plain in zip(compiled_gradients, gradients):
        scale = np.abs(plain).max()
        np.testing.assert_allclose(compiled, plain, atol=1e-4 * max(scale, 1.0))


@pytest.mark.parametrize(
    ("token_mixer", "convolution", "groups"), [*((*m, 1) for m in MIXERS), ("mixed", "span", 2)]
)
def test_every_variable_receives_a_gradient(token_mixer, convolution, groups):
    encoder = build_tiny(token_mixer=token_mixer, convolution=convolution, linear_groups=groups)
    assert len(encoder.variables) == len(encoder.trainable_variables)
    features = random_features(2, 12)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(encoder(features).sequence * normal(2, 12, 16))
    gradients = tape.gradient(loss, encoder.trainable_variables)
    for variable, gradient in zip(encoder.trainable_variables, gradients):
        assert gradient is not None, variable.name
        if not variable.name.endswith("key/bias:0"):  # shifts all scores alike: zero by nature
            assert np.abs(tf.convert_to_tensor(gradient)).max() > 1e-6, variable.name


@pytest.mark.bfloat16
@pytest.mark.parametrize(
    ("token_mixer", "convolution"), [("mixed", "span"), ("convolution", "static")]
)
def test_bfloat16_is_close_to_float32(token_mixer, convolution):
    changes = {"token_mixer": token_mixer, "convolution": convolution, "linear_groups": 2}
    single = build_backbone(TINY.replace(**changes))
    features = random_features(4, 12, [12] * 3 + [5])
    randomize(single, scale=0.2)
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    half = build_backbone(TINY.replace(**changes))
    assert {variable.dtype for variable in half.variables} == {tf.float32}
    half.set_weights(single.get_weights())
    output, expected = half(features).sequence, single(features).sequence
    assert output.dtype == tf.bfloat16
    difference = tf.cast(output, tf.float32) - expected
    assert np.isfinite(difference).all()
    # bfloat16 keeps 8 bits: rounding one number is a relative error of up to 0.004.
    assert np.sqrt(np.mean(difference**2)) < 0.03 * np.std(expected)
    assert np.std(difference) > 0  # it was not float32 after all

    assert MaskedLMHead(TINY, half.embeddings)(output, [[0]] * 4).dtype == tf.float32
    assert DiscriminatorHead(TINY)(output).dtype == tf.float32
    dropped = half(features, training=True, seed=[1, 2]).sequence
    assert np.isfinite(tf.cast(dropped, tf.float32)).all()


@pytest.mark.parametrize("compiled", [None, False, True])
def test_too_long_a_sequence_is_rejected(compiled):
    """XLA drops the assertion, but computes nothing with positions that do not exist either."""
    encoder, expected = build_tiny(), r"max_position_embeddings.*64"
    if compiled is None:
        with pytest.raises(InputError, match=expected + r".*Received.*65"):
            encoder(random_features(1, 65))
        return
    traced = tf.function(
        lambda ids: encoder({"input_ids": ids}).sequence,
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        jit_compile=compiled,
    )
    assert traced(tf.ones([1, 64], tf.int32)).shape == (1, 64, 16)
    with pytest.raises(tf.errors.InvalidArgumentError, match=None if compiled else expected):
        traced(tf.ones([1, 65], tf.int32))


def test_gradients_of_equal_ids_are_summed_in_float32():
    """A sum of a thousand ones is 256 in bfloat16."""
    table = tf.Variable(tf.ones([5, 3]))
    with tf.GradientTape() as tape:
        rows = look_up(table, tf.zeros([1000], tf.int32), "bfloat16")
        total = tf.reduce_sum(tf.cast(rows, tf.float32))
    assert rows.dtype == tf.bfloat16
    gradient = tf.convert_to_tensor(tape.gradient(total, table))
    np.testing.assert_array_equal(gradient[0], [1000.0] * 3)


FORMULAS = {
    "gelu": lambda x: x * np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))))(x),
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}
PLACES = np.linspace(-5, 5, 201, dtype=np.float32)  # where gelu and gelu_new differ by up to 5e-4


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    """In a graph products and activations may be fused."""
    layer, expected = dense(TINY, len(PLACES), "dense", name), FORMULAS[name](np.float64(PLACES))
    layer.build([None, None, 4])
    layer.set_weights([np.zeros([4, len(PLACES)]), PLACES])  # whatever comes in
    for training, length in ((True, 3), (False, 3), (False, None)):
        spec = tf.TensorSpec([2, length, 4])
        traced = tf.function(lambda x, t=training: layer(x, training=t), input_signature=[spec])
        outputs = traced(normal(2, 3, 4)).numpy()
        np.testing.assert_allclose(outputs[1, 2], expected, rtol=0, atol=2e-6)


def test_every_part_uses_the_activation():
    """Feed-forward blocks and both heads; a head may have another one than the encoder."""
    for name in ("gelu", "gelu_new"):
        config = TINY.replace(hidden_act=name)
        layer, encoder = EncoderLayer(config), build_backbone(config)
        formula = layer.intermediate.activation
        np.testing.assert_allclose(formula(PLACES), FORMULAS[name](PLACES), rtol=0, atol=2e-6)
        head = MaskedLMHead(config, encoder.embeddings)
        np.testing.assert_array_equal(head.transform.activation(PLACES), formula(PLACES))
    other = MaskedLMHead(TINY, encoder.embeddings, activation="silu").transform.activation
    np.testing.assert_allclose(other(PLACES), FORMULAS["silu"](PLACES), rtol=0, atol=2e-6)


def test_every_norm_has_the_epsilon():
    encoder = build_backbone(TINY.replace(layer_norm_eps=1e-5))
    head = MaskedLMHead(encoder.config, encoder.embeddings)
    norms = [part for part in (*encoder.submodules, *head.submodules) if type(part) is LayerNorm]
    assert len(norms) >= 2 * TINY.num_hidden_layers + 2
    assert {norm.epsilon for norm in norms} == {1e-5}


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_padded_head_predicts_pieces_only(precision):
    """Padding changes no logit of a piece, and padding rows get no gradient."""
    tf_keras.mixed_precision.set_global_policy(precision)
    encoder = build_backbone(TINY)
    whole, padded = (MaskedLMHead(TINY, encoder.embeddings, pieces=n) for n in (None, 28))
    hidden = encoder(random_features(2, 5)).sequence
    positions = tf.constant([[1, 3], [0, 4]])
    for head in (whole, padded):
        head(hidden, positions)
    randomize(whole)
    padded.set_weights(whole.get_weights())
    with tf.GradientTape() as tape:
        tape.watch(encoder.embeddings.word_embeddings)
        logits = padded(hidden, positions)
        total = tf.reduce_sum(logits**2)
    assert logits.shape == [2, 2, 28]
    np.testing.assert_allclose(logits, whole(hidden, positions)[..., :28], rtol=1e-5, atol=1e-5)
    to_table = tape.gradient(total, encoder.embeddings.word_embeddings)
    assert not np.any(to_table[28:])
    assert np.all(np.any(to_table[:28], axis=-1))


REJECTED = [
    *({"token_mixer": "attn"}, {"convolution": "sdconv"}, {"hidden_act": "geluu"}),
    {"span_kernel": "sum"},
    *({"conv_kernel_size": 4}, {"conv_kernel_size": 0}, {"num_hidden_layers": 0}),
    *({"head_ratio": 3}, {"head_ratio": 0}, {"head_ratio": 2.0}, {"hidden_size": 18}),  # 4 heads
    {"intermediate_size": 31, "linear_groups": 2},
    {"hidden_size": 20, "linear_groups": 8, "intermediate_size": 32},
    *({"vocab_size": "31"}, {"vocab_size": True}, {"share_layers": 1}),
    *({"hidden_dropout_prob": 1.0}, {"attention_probs_dropout_prob": -0.1}),
    {"initializer_range": "0.02"},
    *({"local_attention": 5}, {"canon_kernel_size": 4}),
    {"global_attn_every_n_layers": 1, "token_mixer": "gated_convolution"},
]
MODERN = model_support.TINY_MODERN.replace(token_mixer="mixed")
CONFIGS = (TINY, model_support.TINY_XLNET, MODERN)


@pytest.mark.parametrize(
    ("config", "changes"),
    [
        *((c, n) for c in CONFIGS for n in REJECTED if {*n} <= {*vars(c)}),
        *((MODERN, new) for new in ({"token_mixer": "convolution"}, {"hidden_size": 20})),
    ],
    ids=str,
)
def test_rejected(config, changes):
    name, value = next(iter(changes.items()))
    with rejects(f"`{name}` should be ", f"Received: {value!r}"):
        config.replace(**changes)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "config.json"),
        ('{"hidden_size": 16,\n', "line 2: not JSON"),
        ("[1]", "JSON object"),
        ('{"\udcff": 1}', "UTF-8"),
        ('{"hidden_sise": 16}', "hidden_sise"),
        ('{"hidden_size": 18}', "`hidden_size` should be divisible"),
    ],
)
def test_bad_file_is_named(tmp_path, text, complaint):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    with rejects(path, complaint):
        load_config(str(tmp_path))
