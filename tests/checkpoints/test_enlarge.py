"""A larger model that starts from a smaller one's weights, against index maps in plain Python."""

import dataclasses
import shutil
from operator import attrgetter

import numpy as np
import pytest
import tensorflow as tf

from convbert.checkpoints.model_directory import save
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.model import load_config
from convbert.pretrain.load import load_hparams, load_objective
from tests.command_support import import_command
from tests.huggingface_support import random_conversion
from tests.model.test_modern import TINY as MODERN
from tests.model_support import TINY, TINY_XLNET, framed_texts, tensors
from tests.pretraining_support import HPARAMS, build_data, metrics, run

BERT = TINY.replace(token_mixer="attention", head_ratio=1, embedding_size=16)
MODERN_MIXED = MODERN.replace(token_mixer="mixed", num_hidden_layers=2)
GATED = MODERN.replace(token_mixer="gated_convolution", conv_kernel_size=3, canon_kernel_size=3)
NAMES = ("hidden_size", "num_attention_heads", "intermediate_size", "embedding_size")
NAMES += ("num_hidden_layers",)
SLOW = pytest.mark.slow  # needs five seconds each


with pytest.MonkeyPatch.context() as patched:
    enlarge = import_command(patched, "convbert.checkpoints.enlarge")[0].enlarge


def written(config, folder, objective="masked_lm", **values):
    words = Vocabulary((*SPECIAL_TOKENS, *(f"w{i}" for i in range(config.vocab_size - 5))))
    made = random_conversion(config, words, 0.3, objective=objective, **values)
    save(dataclasses.replace(made, step=0), str(folder), {})
    return made.objective


def enlarged(folder, fields, rescale=False, noise=0.0):
    modern = load_config(str(folder)).architecture == "modern"
    size, output = ("convbert-tiny", "modern-tiny")[modern], f"{folder}_larger"
    enlarge(str(folder), size, fields, output, rescale=rescale, noise=noise)
    return load_objective(output)


def centred(n, N):
    """The source of each index: a copy in the centre, and copies of it around."""
    first = (N - n) // 2
    return [(i - first) % n for i in range(N)]


def parts(index, size, count):
    return [part * size + i for part in range(count) for i in index]


def expected_axes(small, large, layer):
    """The index of each axis of a layer's variables; None: the axis stays."""
    inner = (small.intermediate_size, large.intermediate_size)
    D, inside = centred(small.hidden_size, large.hidden_size), centred(*inner)
    heads = (small.num_heads, large.num_heads)
    h = small.head_size  # channels stand head by head
    A = [a * h + b for a in centred(*heads) for b in centred(h, large.head_size)]
    modern, mixed = small.architecture == "modern", small.token_mixer == "mixed"
    axes = {f"mixer.{name}.kernel": (D, A) for name in ("query", "key", "value", "conv_value")}
    axes |= {f"mixer.{name}.bias": (A,) for name in ("query", "key", "value", "conv_value")}
    both = parts(A, small.mixer_size, 1 + mixed)
    axes |= {"mixer_output.kernel": (both, D), "output_dense.kernel": (inside, D)}
    axes["intermediate.kernel"] = (D, parts(inside, inner[0], 1 + modern))
    axes |= {"intermediate.bias": (inside,), "mixer_output.bias": (D,), "output_dense.bias": (D,)}
    for norm in ("mixer_norm", "output_norm", "feed_forward_norm"):
        axes |= {f"{norm}.gamma": (D,), f"{norm}.beta": (D,)}
    K = range(small.conv_kernel_size)
    taps = [a * len(K) + k for a in centred(*heads) for k in K]
    axes |= {
        "mixer.convolution.kernel_logits.kernel": (A, taps),
        "mixer.convolution.kernel_logits.bias": (taps,),
        "mixer.convolution.span_key.depthwise_kernel": (None, D),
        "mixer.convolution.span_key.pointwise_kernel": (None, D, A),
        "mixer.convolution.span_key.bias": (A,),
    }
    if getattr(layer, "gated", False):
        axes["mixer_output.kernel"] = (D, D)
        axes["mixer.projection.kernel"] = (D, parts(D, small.hidden_size, 3))
        axes["mixer.convolution.kernel"] = (None, D)
    return axes | {"canon.kernel": (None, D)}


def taken(value, axes):
    for axis, index in enumerate(axes):
        value = value if index is None else np.take(value, index, axis)
    return value


@pytest.mark.parametrize(
    ("config", "widths", "layers"),
    [
        (TINY, (30, 6, 44, 11, 5), [0, 0, 1, 1, 1]),  # heads of width 5 instead of 4
        pytest.param(BERT, (28, 7, 44, 28, 3), [0, 1, 1], marks=SLOW),
        # Layer 1 has a norm, unlike 0.
        pytest.param(MODERN, (28, 7, 20, 28, 8), [0, 1, 1, 2, 2, 2, 3, 3], marks=SLOW),
        pytest.param(MODERN_MIXED, (24, 6, 20, 24, 3), [0, 1, 1], marks=SLOW),
        # Global ones: 0, 3 of 4; 0, 3, 6 of 7.
        pytest.param(GATED, (28, 7, 20, 28, 7), [0, 1, 1, 3, 2, 2, 3], marks=SLOW),
    ],
    ids=["convbert", "bert", "modern", "modern mixed", "gated"],
)
def test_every_variable(config, widths, layers, tmp_path):
    small = written(config, tmp_path / "m")
    large = enlarged(tmp_path / "m", dict(zip(NAMES, widths)))
    assert load_config(f"{tmp_path}/m_larger") == config.replace(**dict(zip(NAMES, widths)))
    for layer, i in zip(large.encoder.encoder_layers, layers, strict=True):
        source, seen = small.encoder.encoder_layers[i], set()
        for path, axes in expected_axes(config, large.encoder.config, layer).items():
            try:
                found = attrgetter(path)(layer)
            except AttributeError:
                continue
            if found is not None:
                seen.add(found.ref())
                expected = taken(attrgetter(path)(source).numpy(), axes)
                np.testing.assert_array_equal(found, expected, f"{i}: {path}")
        assert seen == {variable.ref() for variable in layer.variables}
    E = centred(config.embedding_size, widths[3])
    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        if hasattr(small.encoder.embeddings, table):  # rows stay in place
            before, after = (getattr(m.encoder.embeddings, table) for m in (small, large))
            np.testing.assert_array_equal(after, before.numpy()[:, E])
    D = centred(config.hidden_size, widths[0])
    transform = small.head.transform.kernel.numpy()[np.ix_(D, E)]
    np.testing.assert_array_equal(large.head.transform.kernel, transform)
    np.testing.assert_array_equal(large.head.norm.gamma, small.head.norm.gamma.numpy()[E])
    np.testing.assert_array_equal(large.head.output_bias, small.head.output_bias)


@pytest.mark.parametrize(
    ("config", "heads"),
    [
        (TINY.replace(linear_groups=2, embedding_size=16), 8),
        # Heads of twice the width.
        pytest.param(TINY.replace(span_kernel="concatenation"), 4, marks=SLOW),
        pytest.param(TINY.replace(token_mixer="convolution", convolution="static"), 8, marks=SLOW),
        pytest.param(MODERN_MIXED.replace(embedding_size=12), 8, marks=SLOW),
        (GATED, 8),
    ],
    ids=["grouped", "concatenation", "static", "modern mixed", "gated"],
)
def test_twice_the_widths_compute_the_same(config, heads, tmp_path):
    """With rescaling; generator and discriminator."""
    config = config.replace(num_hidden_layers=2 if config is GATED else 1)
    share = {"generator_hidden_size": 0.5}
    small = written(config, tmp_path / "m", "replaced_token_detection", **share)
    widths = {name: 2 * getattr(config, name) for name in NAMES}
    widths |= {"num_attention_heads": heads, "num_hidden_layers": config.num_hidden_layers}
    large = enlarged(tmp_path / "m", widths, rescale=True)
    features, losses = tensors(framed_texts(3, 12, (12, 9, 5))), []
    for model in (small, large):
        batch = model.prepare(features, tf.constant([1, 2]))
        loss, _ = model.loss(batch, model.normalizers(batch), training=False)
        losses.append(float(loss))
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_widths_of_other_groups_than_the_named_sizes(tmp_path):
    """And of embeddings whose width is then no multiple of the groups."""
    config = TINY.replace(linear_groups=3, hidden_size=24, intermediate_size=48, embedding_size=12)
    written(config.replace(num_hidden_layers=1), tmp_path / "m", "masked_lm")
    for embedding_size in (16, 18):
        fields = dict(zip(NAMES, (48, 4, 96, embedding_size, 1)))
        assert enlarged(tmp_path / "m", fields).encoder.config.embedding_size == embedding_size
        shutil.rmtree(tmp_path / "m_larger")
    larger = {"num_hidden_layers": 1, "embedding_size": 128, "num_attention_heads": 4}
    larger |= {"intermediate_size": 1539}  # which two groups do not divide
    names, output = (str(tmp_path / "m"), "convbert-medium-small"), f"{tmp_path}/m_larger"
    enlarge(*names, larger, output, rescale=True, noise=0.0)


def test_noise_tells_copies_apart(tmp_path):
    """Of kernels only; copies of a unit would otherwise have equal gradients for ever."""
    small = written(BERT.replace(num_hidden_layers=1), tmp_path / "m").encoder
    large = enlarged(tmp_path / "m", dict(zip(NAMES, (16, 4, 64, 16, 1))), noise=0.1).encoder
    (layer,), (larger,) = small.encoder_layers, large.encoder_layers
    tiled = taken(layer.intermediate.kernel.numpy(), (None, centred(32, 64)))
    noise = larger.intermediate.kernel.numpy() - tiled
    assert 0.5 * 0.002 < noise.std() < 0.002  # of a truncated normal distribution
    bias = layer.intermediate.bias.numpy()[centred(32, 64)]
    np.testing.assert_array_equal(larger.intermediate.bias, bias)


@pytest.mark.slow  # needs nine seconds: a step of each
def test_training_continues(tmp_path, capsys):
    """The objective, dropout and ids are the smaller model's."""
    config = TINY.replace(hidden_dropout_prob=0.3, num_hidden_layers=1)
    written(config, tmp_path / "m", mask_prob=0.3)
    fields = dict(zip(NAMES, (32, 8, 32, 16, 1)))
    large, source = enlarged(tmp_path / "m", fields), f"{tmp_path}/m_larger"
    assert large.encoder.config.hidden_dropout_prob == 0.3
    assert load_hparams(source)[0].objective == load_hparams(str(tmp_path / "m"))[0].objective
    words = [f"w{i}" for i in range(config.vocab_size - 5)]
    data_dir = build_data(tmp_path, words=words, vocab=tmp_path / "m", count=20)
    defaults = {name: HPARAMS[name] for name in HPARAMS if "model" not in name}
    defaults["num_train_steps"] = 4
    run(data_dir, f"{tmp_path}/run", defaults=defaults, continue_from=source)
    assert "model.ckpt-0: encoder, head; optimizer fresh" in capsys.readouterr().err
    losses = [row["loss"] for row in metrics(f"{tmp_path}/run")]
    assert losses
    assert all(0 < loss < 20 for loss in losses)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {"convbert": TINY, "modern": MODERN.replace(num_hidden_layers=1), "xlnet": TINY_XLNET}
    made["causal"] = TINY.replace(causal=True)
    objectives = {"xlnet": "permutation_lm", "causal": "causal_lm"}
    folder = tmp_path_factory.mktemp("small")
    for name, config in made.items():
        more = {"adaptive_softmax_cutoffs": [10]} if name == "causal" else {}
        written(config, folder / name, objectives.get(name, "masked_lm"), **more)
    return folder


@pytest.mark.parametrize(
    ("name", "fields", "complaint"),
    [
        ("convbert", {"hidden_size": 8}, "`hidden_size` should be at least 16\\."),
        ("convbert", {"embedding_size": 128}, "`embedding_size` should be other than hidden_size"),
        ("convbert", {"conv_kernel_size": 7}, "conv_attn_kernel/kernel:0: "),
        ("convbert", {"token_mixer": "attention"}, "encoder: the models should have the same"),
        ("convbert", {"num_layers": 3}, "Unknown name `num_layers`"),
        ("modern", {"num_hidden_layers": 1}, "mixer/.*rotary positions keep their width"),
        ("modern", {"num_attention_heads": 32}, "the models should have the same structure"),
        ("xlnet", {}, "of one architecture, convbert or modern. Received: xlnet to convbert"),
        # Its groups read the first channels of the embeddings, which move.
        ("causal", {}, "next_token_predictions/group_embeddings:0: "),
    ],
    ids=str,
)
def test_errors(name, fields, complaint, folders):
    narrow = {"embedding_size": 16} if name in ("convbert", "causal") else {}
    with pytest.raises(InputError, match=complaint):
        enlarged(folders / name, {**narrow, **fields})
    assert not (folders / f"{name}_larger").exists()


def test_a_vocabulary_that_training_did_not_have(folders, tmp_path):
    shutil.copytree(folders / "modern", tmp_path / "m")
    lines = (tmp_path / "m" / "vocab.txt").read_text().splitlines()
    (tmp_path / "m" / "vocab.txt").write_text("\n".join([*lines[:-2], *lines[:-3:-1], ""]))
    with pytest.raises(InputError, match=r"vocab\.txt"):
        enlarged(tmp_path / "m", {})
