"""Slow: transformers itself makes models, loads what we write of them, and gives the same outputs.

Needs `python -m pip install -r requirements-peers.txt -c constraints.txt`, 6 GiB of memory and
about three minutes on two cores; without these packages it is skipped and says so.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

import numpy as np
import pytest
import tensorflow as tf

from checkpoints import huggingface
from checkpoints.huggingface.tokenizer import read_vocabulary, write_tokenizer
from checkpoints.model_directory import Options
from data.tokenization import Tokenizer
from data.vocabulary import SPECIAL_TOKENS, Vocabulary
from model import SIZES, EncoderConfig
from pretrain.objectives.replaced_token_detection_loss import ReplacedTokenDetection
from tests.huggingface_support import (
    FOLDER,
    NAMES,
    PLAIN,
    SPAN,
    TENSOR_TOLERANCE,
    all_positions,
    change_json,
    conversion,
    hparams_of,
    load,
    reference,
    tensors,
)

NEEDED = "needs requirements-peers.txt"
torch = pytest.importorskip("torch", reason=NEEDED)
transformers = pytest.importorskip("transformers", reason=NEEDED)

pytestmark = pytest.mark.slow  # see above for what it needs

FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")
EPSILON = {"layer_norm_eps": 1e-3}  # large enough to be seen
CONFIGS: dict[str, tuple[str, EncoderConfig]] = {
    "convbert-toy": ("convbert", SPAN),
    "convbert-toy-grouped": ("convbert", SPAN.replace(linear_groups=2, conv_kernel_size=3)),
    "electra-toy": ("electra", PLAIN),
    "bert-toy": ("bert", PLAIN.replace(embedding_size=32)),
    "convbert-toy-gelu-new": ("convbert", SPAN.replace(hidden_act="gelu_new", **EPSILON)),
    "convbert-toy-silu": ("convbert", SPAN.replace(hidden_act="silu", linear_groups=2)),
    "electra-toy-gelu-new": ("electra", PLAIN.replace(hidden_act="gelu_new", **EPSILON)),
    "bert-toy-gelu-new": ("bert", PLAIN.replace(embedding_size=32, hidden_act="gelu_new")),
    "bert-toy-silu": ("bert", PLAIN.replace(embedding_size=32, hidden_act="silu", **EPSILON)),
    "bert-toy-relu": ("bert", PLAIN.replace(embedding_size=32, hidden_act="relu")),
    **{name: ("convbert", SIZES[name]) for name in SIZES if name.startswith("convbert")},
    "electra-small": ("electra", SIZES["electra-small"]),
    "electra-base": ("electra", SIZES["electra-base"]),
    "bert-small": ("bert", SIZES["bert-small"].replace(embedding_size=256)),
    "bert-base": ("bert", SIZES["bert-base"]),
}


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other cost more than such networks."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def theirs(model_type: str, config: EncoderConfig):
    """transformers' configuration of the same numbers."""
    fields = {**vars(config)}
    groups = fields.pop("linear_groups")
    for name in ("token_mixer", "convolution", "share_layers", "mask_padding", "causal"):
        del fields[name]
    if model_type == "convbert":
        return transformers.ConvBertConfig(**fields, num_groups=groups)
    for name in ("head_ratio", "conv_kernel_size"):
        del fields[name]
    if model_type == "bert":
        del fields["embedding_size"]
        return transformers.BertConfig(**fields)
    return transformers.ElectraConfig(**fields)


def randomized(model, seed: int):
    """Weights whose products keep the size of what enters them, whatever the width; no zeros."""
    draw = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        noise = torch.randn(weight.shape, generator=draw)
        if name.endswith("LayerNorm.weight"):
            weight.data = 1.0 + 0.2 * noise
        elif name.endswith("bias"):
            weight.data = 0.2 * noise
        elif "embeddings." in name:
            weight.data = weight.shape[1] ** -0.5 * noise
        else:  # [out, in], or grouped [G, in / G, out / G], or depthwise [D, 1, K]
            inputs = weight.shape[2] if "depthwise" in name else weight.shape[1]
            weight.data = inputs**-0.5 * noise
    return model.eval()


def save_vocabulary(size: int, folder: pathlib.Path) -> None:
    tokens = [*SPECIAL_TOKENS, *(f"piece{i}" for i in range(size - len(SPECIAL_TOKENS)))]
    ids = {token: i for i, token in enumerate(tokens)}
    transformers.BertTokenizer(ids).save_pretrained(folder)


def padded_batch(config: EncoderConfig) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    S = min(config.max_position_embeddings, 40)
    mask = (np.arange(S) < np.array([[S], [S // 2], [3]])).astype(np.int32)  # [B, S]
    return {
        "input_ids": draw.integers(1, config.vocab_size, mask.shape).astype(np.int32) * mask,
        "input_mask": mask,
        "segment_ids": draw.integers(0, 2, mask.shape).astype(np.int32) * mask,
    }


def run(model, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`sequence` and, where there is a head, `logits`, of transformers' model."""
    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    names["token_type_ids"] = "segment_ids"
    features = {name: torch.from_numpy(batch[ours]).long() for name, ours in names.items()}
    with torch.no_grad():
        sequence = model.base_model(**features).last_hidden_state
        whole = model(**features)
    logits = whole.get("logits", whole.get("prediction_logits"))
    return {"sequence": sequence.numpy(), "logits": None if logits is None else logits.numpy()}


def assert_close(actual, expected):
    np.testing.assert_allclose(actual.numpy(), expected, rtol=0, atol=TENSOR_TOLERANCE)


def assert_same_outputs(objective, expected, batch, generator=None):
    """Ours against theirs: hidden states at every position, padding too, and all logits."""
    features = {name: tf.constant(value) for name, value in batch.items()}
    sequence = objective.encoder(features).sequence
    assert np.abs(expected["sequence"]).max() > 1.0
    assert_close(sequence, expected["sequence"])
    if isinstance(objective, ReplacedTokenDetection):
        if expected["logits"] is not None:
            assert_close(objective.head(sequence), expected["logits"])
        small = objective.generator(features).sequence
        assert_close(small, generator["sequence"])
        logits = objective.generator_head(small, all_positions(small))
        assert_close(logits, generator["logits"])
    elif expected["logits"] is not None:
        assert_close(objective.head(sequence, all_positions(sequence)), expected["logits"])


def loaded(model_class, folder: pathlib.Path, missing=()):
    """What transformers makes of a folder, having found every tensor and no other."""
    model, said = model_class.from_pretrained(folder, output_loading_info=True)
    assert not said["unexpected_keys"]
    assert not said["mismatched_keys"]
    assert set(said["missing_keys"]) == set(missing)
    return model.eval()


CLASSES = {"convbert": "ConvBertForMaskedLM", "bert": "BertForPreTraining"}
WRITTEN = {"convbert": "ConvBertForMaskedLM", "bert": "BertForMaskedLM"}


def assert_written_back(classes, folder, batch, expected) -> None:
    """What was read is written with equal tensors, of which transformers computes the same."""
    for inside, class_name in classes.items():
        assert_same_tensors(folder, inside)
        again = loaded(getattr(transformers, class_name), folder / "back" / inside)
        np.testing.assert_array_equal(run(again, batch)["logits"], expected[inside]["logits"])


# With padding: the vocabulary has so many tokens more than the tokenizer has entries.
MASKED_LM = [(name, 0) for name in CONFIGS if not name.startswith("electra")]
MASKED_LM += [("convbert-toy", 11), ("bert-toy", 11)]
ELECTRA = [(name, 0, None) for name in CONFIGS if name.startswith("electra")]
ELECTRA += [("electra-toy-gelu-new", 11, 40)]


@pytest.mark.parametrize(("name", "padding"), MASKED_LM)
def test_masked_lm_there_and_back(name, padding, tmp_path):
    model_type, config = CONFIGS[name]
    model = getattr(transformers, CLASSES[model_type])(theirs(model_type, config))
    randomized(model, 1).save_pretrained(tmp_path / "theirs")
    entries = config.vocab_size - padding
    save_vocabulary(entries, tmp_path / "theirs")
    batch = padded_batch(config.replace(vocab_size=entries))
    expected = run(model, batch)
    read = huggingface.read(str(tmp_path / "theirs"), Options())
    assert read.config == config.replace(mask_padding=False, **neutral(read.config))
    assert read.hparams.vocab_size == entries
    kept = {**expected, "logits": expected["logits"][..., :entries]}
    assert_same_outputs(read.objective, kept, batch)

    (tmp_path / "back").mkdir()
    huggingface.write(read, str(tmp_path / "back"))
    assert_written_back({"": WRITTEN[model_type]}, tmp_path, batch, {"": expected})
    base = transformers.AutoModel.from_pretrained(tmp_path / "back").eval()
    np.testing.assert_array_equal(run(base, batch)["sequence"], expected["sequence"])


@pytest.mark.parametrize(("name", "padding", "inner"), ELECTRA)
def test_electra_there_and_back(name, padding, inner, tmp_path):
    """With `inner`, a generator of that inner width."""
    _, config = CONFIGS[name]
    share = 1 / 3 if name.endswith("base") else 1 / 4
    width = round(config.hidden_size * share)
    small = config.replace(
        hidden_size=width,
        num_attention_heads=round(config.num_attention_heads * share),
        intermediate_size=inner or 4 * width,
    )
    model = randomized(transformers.ElectraForPreTraining(theirs("electra", config)), 1)
    generator = randomized(transformers.ElectraForMaskedLM(theirs("electra", small)), 2)
    generator.electra.embeddings.load_state_dict(model.electra.embeddings.state_dict())
    model.save_pretrained(tmp_path / "theirs")
    generator.save_pretrained(tmp_path / "theirs" / "generator")
    entries = config.vocab_size - padding
    save_vocabulary(entries, tmp_path / "theirs")
    batch = padded_batch(config.replace(vocab_size=entries))
    expected, of_generator = run(model, batch), run(generator, batch)
    read = huggingface.read(str(tmp_path / "theirs"), Options())
    assert read.hparams.objective.generator_intermediate_size == inner
    kept = {**of_generator, "logits": of_generator["logits"][..., :entries]}
    assert_same_outputs(read.objective, expected, batch, kept)

    (tmp_path / "back").mkdir()
    huggingface.write(read, str(tmp_path / "back"))
    classes = {"": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}
    assert_written_back(classes, tmp_path, batch, {"": expected, "generator": of_generator})


def neutral(config: EncoderConfig) -> dict:
    """What an encoder without convolution has by default."""
    return {} if config.token_mixer == "mixed" else {"conv_kernel_size": 9}


def assert_same_tensors(folder: pathlib.Path, inside: str = "") -> None:
    original, back = tensors(folder / "theirs" / inside), tensors(folder / "back" / inside)
    for name, tensor in back.items():
        np.testing.assert_array_equal(tensor, original[name], strict=True, err_msg=name)
    for name in set(original) - set(back):
        assert re.search(r"pooler|seq_relationship", name)


@pytest.mark.parametrize("name", ["tiny", "medium-small", "base"])
def test_our_convbert_in_transformers(name, tmp_path):
    """With the generator, and the discriminator's head that transformers does not look for."""
    config = SPAN if name == "tiny" else SIZES[f"convbert-{name}"]
    config = config.replace(vocab_size=137, mask_padding=False, max_position_embeddings=40)
    hparams = hparams_of(config, generator_hidden_size=1 / 3 if name == "base" else 1 / 4)
    ours = conversion(ReplacedTokenDetection, hparams, config)
    for variable in ours.objective.trainable_variables:  # drawn for tiny widths
        if variable.shape.rank > 1:
            variable.assign(variable * min(1.0, 2 * variable.shape[-2] ** -0.5))
    huggingface.write(ours, str(tmp_path))
    batch = padded_batch(config)
    model = loaded(transformers.AutoModel, tmp_path)
    assert type(model).__name__ == "ConvBertModel"
    generator = loaded(transformers.ConvBertForMaskedLM, tmp_path / "generator")
    expected = {"sequence": run(model, batch)["sequence"], "logits": None}
    assert_same_outputs(ours.objective, expected, batch, run(generator, batch))


def test_our_bert_and_electra_encoders_in_transformers(tmp_path):
    read = load("bert")
    huggingface.write(read, str(tmp_path))
    pooler = ["pooler.dense.weight", "pooler.dense.bias"]
    model, said = transformers.AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == "BertModel"
    assert set(said["missing_keys"]) == set(pooler)  # which is said when it is written
    assert all(name.startswith("cls.predictions.") for name in said["unexpected_keys"])


@pytest.mark.parametrize("switches", [(True, True), (True, False), (False, True), (False, False)])
def test_ids_of_what_we_write(switches, tmp_path):
    texts = set()
    for name in NAMES:
        texts |= set(json.loads((FOLDER / name / "tokenized.json").read_text(encoding="utf-8")))
    texts = sorted(texts - {"pair"})
    read = load("bert")
    lower, strip = switches
    vocabulary = Vocabulary(read.vocabulary.tokens, do_lower_case=lower, strip_accents=strip)
    read = type(read)(read.config, read.hparams, vocabulary, read.objective)
    huggingface.write(read, str(tmp_path))
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer).__name__ == "BertTokenizer"
    ids, splits = Tokenizer(vocabulary).tokenize(texts)
    for i, text in enumerate(texts):
        expected = ids[splits[i] : splits[i + 1]].tolist()
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == expected, text
        assert tokenizer.decode(expected)
    a, b = (ids[splits[i] : splits[i + 1]].tolist() for i in (0, 1))
    pair = tokenizer(texts[0], texts[1])
    cls, sep = vocabulary.cls_id, vocabulary.sep_id
    assert pair["input_ids"] == [cls, *a, sep, *b, sep]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert tokenizer.mask_token_id == vocabulary.mask_id
    assert tokenizer.pad_token_id == vocabulary.pad_id
    assert tokenizer.model_max_length == 24


ADDED_TEXTS = (
    "the<X>of <X><Y> the",
    "<x> <y>Ünïted<Y>ing",
    "wordy theWord word<X>word",
    "<XX><XXX><X",
    "\u4e2d<X>\u4e2d <Y>\u0301 a\u0301<X>",
    "<X> ,<Y>.  <X>\t\n<Y>",
    "WORD w\u00f6rd <X\u200b> <Y\u200b>",
)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["whole", "vocab.txt", "generic"])
def test_ids_of_added_tokens(lower, kind, tmp_path):
    """Of what transformers writes, as we read it; of what we write, as transformers reads it."""
    ids = dict(load("bert").vocabulary.ids)
    tokenizer = transformers.BertTokenizer(ids, do_lower_case=lower)
    added = transformers.AddedToken
    tokenizer.add_special_tokens({"additional_special_tokens": ["<X>"]})
    tokenizer.add_tokens([added("<Y>", lstrip=True), added("word"), added("<XX>", rstrip=True)])
    tokenizer.save_pretrained(tmp_path / "theirs")
    if kind == "vocab.txt":
        (tmp_path / "theirs" / "tokenizer.json").unlink()
        lines = "".join(f"{token}\n" for token in ids)
        (tmp_path / "theirs" / "vocab.txt").write_text(lines, encoding="utf-8")
        by_id = {
            number: {**{f: getattr(t, f) for f in FLAGS}, "content": t.content}
            for number, t in tokenizer.added_tokens_decoder.items()
        }
        change_json(tmp_path / "theirs" / "tokenizer_config.json", added_tokens_decoder=by_id)
    elif kind == "generic":
        path = tmp_path / "theirs" / "tokenizer_config.json"
        change_json(path, tokenizer_class="PreTrainedTokenizerFast")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "theirs")
    vocabulary, _ = read_vocabulary(str(tmp_path / "theirs"))
    assert vocabulary.size == len(ids) + 4 == len(tokenizer)
    (tmp_path / "back").mkdir()
    write_tokenizer(vocabulary, str(tmp_path / "back"), 24)
    back = transformers.AutoTokenizer.from_pretrained(tmp_path / "back")
    for text in ADDED_TEXTS:
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert Tokenizer(vocabulary).tokenize([text])[0].tolist() == expected, text
        assert back(text, add_special_tokens=False)["input_ids"] == expected, text
    assert back.convert_tokens_to_ids(["<X>", "word"]) == [
        vocabulary.ids[token] for token in ("<X>", "word")
    ]


def test_defaults_are_those_of_transformers():
    """What a config.json leaves out."""
    from checkpoints.huggingface.config import DEFAULTS

    for model_type, defaults in DEFAULTS.items():
        config = transformers.AutoConfig.for_model(model_type)
        for name, value in defaults.items():
            assert getattr(config, name) == value, (model_type, name)
        assert config.layer_norm_eps == 1e-12


def test_the_committed_files_are_what_their_command_makes(tmp_path):
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    command = readme.split("```")[1]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True)
    for name in NAMES:
        made, committed = tensors(tmp_path / name), tensors(FOLDER / name)
        assert set(made) == set(committed)
        for key, tensor in made.items():
            np.testing.assert_array_equal(tensor, committed[key], err_msg=key)
        with np.load(tmp_path / name / "reference.npz") as arrays:
            for key, expected in reference(name).items():
                np.testing.assert_allclose(arrays[key], expected, rtol=0, atol=1e-5)
        ids = (tmp_path / name / "tokenized.json").read_text(encoding="utf-8")
        assert ids == (FOLDER / name / "tokenized.json").read_text(encoding="utf-8")
