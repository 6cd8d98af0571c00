"""Model directories between formats: what describes an encoder, and what is rejected at once."""

import dataclasses
import shutil

import pytest

from convbert.checkpoints import huggingface, model_directory, tf1, xlnet
from convbert.common.errors import InputError
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.model import SIZES, Encoder, build_backbone, load_config
from convbert.model.xlnet.config import XLNetConfig
from tests import xlnet_support
from tests.finetune.kinds_support import rejects
from tests.huggingface_support import PLAIN, SPAN, conversion
from tests.model_support import TINY


def test_a_vocabulary_of_words_stays_here(tmp_path):
    """No other format has one."""
    tokens = ["[PAD]", "<unk>", "<eos>", "[MASK]"]
    tokens += [f"w{i}" for i in range(TINY.vocab_size - len(tokens))]
    words = Vocabulary(tuple(tokens), False, False, tokenizer="words")
    networks = model_directory.Networks(build_backbone(TINY))
    conversion = model_directory.Conversion(
        TINY, model_directory.describe_pretraining(TINY, words), words, networks
    )
    model_directory.save(conversion, str(tmp_path), {})
    with pytest.raises(InputError):
        model_directory.load(str(tmp_path))


@pytest.mark.parametrize("name", SIZES)
def test_named_sizes_are_recognised(name):
    config = SIZES[name]
    bert = name.startswith("bert")
    objective = "masked_lm" if bert or name.startswith("xlnet") else "replaced_token_detection"
    words = (f"w{i}" for i in range(config.vocab_size - len(SPECIAL_TOKENS)))
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *words))
    hparams = model_directory.describe_pretraining(config, vocabulary, objective=objective)
    assert SIZES[hparams.model_size] == config
    assert bert == hparams.model_size.startswith("bert")
    assert hparams.model_hparam_overrides == {}


def test_what_does_not_fit_together_is_rejected(folders, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(folders("convbert")[1], model)
    config, vocabulary = load_config(str(model)), Vocabulary.load(model)
    dataclasses.replace(vocabulary, tokens=vocabulary.tokens[:-1]).save(model)
    with pytest.raises(InputError):
        model_directory.load(str(model))
    vocabulary.save(model)
    config.replace(num_hidden_layers=3).save(str(model))
    for folder in (model, tmp_path):
        with pytest.raises(InputError):
            model_directory.load(str(folder))


XLNET = xlnet_support.TINY
WRITERS = {
    "convbert": (tf1.write, huggingface.write),
    "xlnet": (xlnet.write_tf1, xlnet.write_huggingface),
}


class SigmoidEncoder(Encoder):
    """Each tap of its convolution has a weight of its own between 0 and 1, and no softmax."""


CHANGES = {
    "SigmoidEncoder": lambda encoder: setattr(encoder, "__class__", SigmoidEncoder),
    "gate": lambda encoder: encoder.encoder_layers[1].output_dense.add_weight("gate", [4]),
    "scale": lambda network: network.add_weight("scale", [1]),
}


@pytest.mark.parametrize("target", [0, 1], ids=["tf1", "huggingface"])
@pytest.mark.parametrize(
    ("model", "part", "named"),
    [
        *(("convbert", "encoder", named) for named in ("SigmoidEncoder", "gate")),
        *(("convbert", "head", "scale"), ("xlnet", "encoder", "scale")),
    ],
)
def test_a_changed_network(target, model, part, named, tmp_path):
    if model == "xlnet":
        made = xlnet_support.conversion()
    else:
        made = conversion(SPAN, objective="masked_lm")
    CHANGES[named](getattr(made.objective, part))
    with rejects(named):
        WRITERS[model][target](made, str(tmp_path))


LM = {"objective": "masked_lm"}


@pytest.mark.parametrize(
    ("write", "config", "values", "field"),
    [
        (tf1.write, PLAIN.replace(hidden_act="gelu_new"), {}, "hidden_act"),
        (tf1.write, PLAIN, {"generator_intermediate_size": 40}, "generator_intermediate_size"),
        (tf1.write, PLAIN.replace(hidden_act="relu"), {"masked_lm_act": "gelu"}, "masked_lm_act"),
        (tf1.write, SPAN.replace(convolution="dynamic"), {}, "convolution"),
        (xlnet.write_tf1, XLNET.replace(layer_norm_eps=1e-6), {}, "layer_norm_eps"),
        (huggingface.write, SPAN.replace(token_mixer="convolution"), LM, "token_mixer"),
        (huggingface.write, SPAN.replace(causal=True), LM, "causal"),
        (huggingface.write, SPAN.replace(head_ratio=4), LM, "head_ratio"),
        (huggingface.write, SPAN.replace(hidden_act="relu"), LM, "hidden_act"),
        (huggingface.write, PLAIN.replace(head_ratio=2), LM, "head_ratio"),
        (huggingface.write, PLAIN.replace(hidden_act="tanh"), LM, "hidden_act"),
    ],
)
def test_networks_that_a_format_lacks(write, config, values, field, tmp_path):
    if isinstance(config, XLNetConfig):
        made = xlnet_support.conversion(config)
    else:
        made = conversion(config, **{"generator_hidden_size": 0.5, **values})
    with rejects(f"`{field}`"):
        write(made, str(tmp_path))
    assert not list(tmp_path.iterdir())
