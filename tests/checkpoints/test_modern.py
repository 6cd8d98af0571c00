"""ModernBERT from and to Hugging Face's files; against transformers where there is one."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from convbert.checkpoints.formats import from_elsewhere, to_elsewhere
from convbert.checkpoints.model_directory import Options, save
from convbert.common.errors import InputError
from convbert.data.tokenizers import create_tokenizer
from convbert.data.vocabulary import Vocabulary
from convbert.data.vocabulary_learning import learn_vocabulary
from convbert.model import load_config
from convbert.pretrain.load import load_encoder, load_objective
from convbert.serving.export import export
from convbert.serving.load import load_model_directory
from tests import peers
from tests.huggingface_support import change_json, random_conversion
from tests.model.test_modern import TINY
from tests.model_support import random_features
from tests.sentencepiece_support import sentences
from tests.tf1_support import assert_equal_tensors

CONFIG = TINY.replace(vocab_size=400, conv_kernel_size=9)


def write(folder, words, config=CONFIG):
    made = random_conversion(config, words, objective="masked_lm", masked_lm_act="relu")
    save(made, str(folder / "model"), {})
    to_elsewhere("huggingface", str(folder / "model"), str(folder / "theirs"))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    words = learn_vocabulary(sentences(400), 390, tokenizer="bpe")
    return write(tmp_path_factory.mktemp("modern"), words)


def copied(made, to, **changes):
    shutil.copytree(made / "theirs", to)
    change_json(to / "config.json", **changes)
    return str(to)


def logits(model_dir, lengths=(9, 4, 1)):
    S, objective = max(lengths), load_objective(str(model_dir))
    states = objective.encoder(random_features(3, S, lengths)).sequence
    return objective.head(states, np.tile(np.arange(S), [3, 1])).numpy()


def test_the_way_back_is_identical(made, tmp_path):
    notes = from_elsewhere("huggingface", str(made / "theirs"), str(tmp_path / "m"), Options())
    assert not any("not used" in note for note in notes)
    assert load_config(str(tmp_path / "m")) == CONFIG
    assert Vocabulary.load(tmp_path / "m") == Vocabulary.load(made / "model")
    np.testing.assert_array_equal(logits(tmp_path / "m"), logits(made / "model"))
    to_elsewhere("huggingface", str(tmp_path / "m"), str(tmp_path / "again"))
    for name in ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (made / "theirs" / name).read_bytes()


NEW = ("layer_types", "rope_parameters")
OLD = ("global_attn_every_n_layers", "global_rope_theta", "local_rope_theta")


@pytest.mark.parametrize("without", [NEW, OLD])
def test_old_and_new_configurations(made, tmp_path, without):
    folder = copied(made, tmp_path / "theirs", **dict.fromkeys(without, "absent"))
    from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())
    assert load_config(str(tmp_path / "m")) == CONFIG


def test_kinds_of_layers_win_over_their_period(made, tmp_path):
    kinds = ["full_attention", *["sliding_attention"] * 3]
    folder = copied(made, tmp_path / "theirs", layer_types=kinds, global_attn_every_n_layers=2)
    from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())
    assert not any(map(load_config(str(tmp_path / "m")).is_global, range(1, 4)))


def test_an_encoder_alone(made, tmp_path):
    """As ModernBertModel writes it: names without "model.", no head."""
    folder = copied(made, tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = {n[6:]: value for n, value in load_file(path).items() if n.startswith("model.")}
    save_file(tensors, path)
    change_json(tmp_path / "theirs" / "config.json", architectures=["ModernBertModel"])
    from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())
    to_elsewhere("huggingface", str(tmp_path / "m"), str(tmp_path / "again"))
    assert_equal_tensors(load_file(tmp_path / "again" / "model.safetensors"), tensors)


GLOBAL, WINDOW = "full_attention", ["sliding_attention"] * 4
YARN, LINEAR = {"rope_type": "yarn"}, {"type": "linear", "factor": 4}
OTHERWISE = {"norm_bias": True, "local_attention": 5, "head_dim": 8, "sliding_window": 4}
OTHERWISE |= {"is_decoder": True, "architectures": 5}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        *(({name: value}, f"`{name}`") for name, value in OTHERWISE.items()),
        *(({"layer_types": of}, "`layer_types`") for of in (WINDOW, 5, [GLOBAL, WINDOW[0]])),
        *(({"rope_parameters": {GLOBAL: of}}, "`rope_type`") for of in (YARN, LINEAR)),
        ({"rope_parameters": [1]}, "`rope_parameters`"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "rope_parameters"),
        *(({"num_attention_heads": of}, "`num_attention_heads`") for of in ("2", 0)),
        *(({"vocab_size": 300}, "vocab_size"), ({"hidden_size": 32}, "should have shape")),
    ],
)
def test_what_would_compute_something_else_is_rejected(made, tmp_path, changes, field):
    folder = copied(made, tmp_path / "theirs", **changes)
    with pytest.raises(InputError, match=field):
        from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())
    assert not (tmp_path / "m").exists()


def test_missing_and_foreign_tensors_are_named(made, tmp_path):
    folder = copied(made, tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(path)
    missing = ("model.layers.1.attn_norm.weight", "decoder.bias", "head.dense.weight")
    foreign = ("model.layers.0.attn_norm.weight", "model.layers.1.attn.Wo.bias", "lora_A.weight")
    cases = [(name, {n: of for n, of in tensors.items() if n != name}) for name in missing]
    cases += [(name, {**tensors, name: tensors["head.norm.weight"]}) for name in foreign]
    for name, other in cases:
        save_file(other, path)
        with pytest.raises(InputError, match=name):
            from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())


def test_a_tokenizer_with_another_template_is_rejected(made, tmp_path):
    folder = copied(made, tmp_path / "theirs")
    path = tmp_path / "theirs" / "tokenizer.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps({**before, "post_processor": None}))
    with pytest.raises(InputError, match="`post_processor`"):
        from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())
    path.write_text(json.dumps({**before, "truncation": {"max_length": 3, "stride": 0,
        "strategy": "LongestFirst", "direction": "Right"}}))  # fmt: skip
    from_elsewhere("huggingface", folder, str(tmp_path / "m"), Options())


def test_mixers_that_it_does_not_have(made, tmp_path):
    words = Vocabulary.load(made / "model")
    for changes in ({"token_mixer": "mixed"}, {"canon_kernel_size": 3}, {"embedding_size": 8}):
        folder = tmp_path / next(iter(changes))
        other = random_conversion(CONFIG.replace(**changes), words, objective="masked_lm")
        save(other, str(folder), {})
        with pytest.raises(InputError, match=next(iter(changes))):
            to_elsewhere("huggingface", str(folder), str(tmp_path / "theirs"))
    with pytest.raises(InputError, match="tf1"):
        to_elsewhere("tf1", str(made / "model"), str(tmp_path / "theirs"))


def largest_difference(folder, lengths=(9, 4, 1)):
    """Of the hidden states of all layers, and of logits, between ours and theirs."""
    batch = random_features(3, max(lengths), lengths)
    output = load_objective(str(folder / "model")).encoder(batch)
    ours = [output.embedding_output, *output.hidden_states, logits(folder / "model", lengths)]
    del batch["segment_ids"]
    found = peers.ask(peers.outputs, "ModernBertForMaskedLM", folder / "theirs", batch)
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    theirs = [*found["states"], found["outputs"]["logits"][..., :390]]
    real = batch["input_mask"] > 0
    gaps = [np.abs(np.array(a)[real] - b[real]).max() for a, b in zip(ours, theirs, strict=True)]
    return np.max(gaps)  # NaN if one is


def test_transformers_loads_what_is_written(made, transformers):
    """Both ways: the same logits of ours, the same ids of texts."""
    assert largest_difference(made) < 1e-4
    texts = ["A café,  two spaces", "[MASK] of the river"]
    tokenized = peers.ask(peers.tokenized, made / "theirs", texts, whole=texts)
    words = Vocabulary.load(made / "model")
    ids, splits = create_tokenizer(words).tokenize(texts)
    assert tokenized["ids"] == [part.tolist() for part in np.split(ids, splits[1:-1])]
    assert (tokenized["pad_token_id"], tokenized["mask_token_id"]) == (words.pad_id, words.mask_id)


@pytest.mark.parametrize(
    ("changes", "length"),
    [
        ({}, 1),
        ({"local_attention": 128, "max_position_embeddings": 1024}, 1024),
        ({"hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 7}, 33),
        ({"num_hidden_layers": 7, "global_attn_every_n_layers": 2}, 40),
        ({"global_attn_every_n_layers": 1, "global_rope_theta": 10_000.0}, 20),
        ({"local_rope_theta": 160_000.0, "local_attention": 16}, 64),
    ],
)
def test_transformers_computes_the_same(made, transformers, tmp_path, changes, length):
    config = CONFIG.replace(**{"embedding_size": changes.get("hidden_size", 16), **changes})
    write(tmp_path, Vocabulary.load(made / "model"), config)
    largest = largest_difference(tmp_path, (length, (length + 1) // 2, 1))
    print(f"{changes}, {length} tokens: {largest:.1e}")
    assert largest < 1e-4  # of 1,024 tokens, theirs differ by 5e-5 from float64


def test_what_transformers_writes_is_read(made, transformers, tmp_path):
    shutil.copytree(made / "theirs", tmp_path / "theirs")
    peers.ask(peers.make_like, "ModernBertForMaskedLM", tmp_path / "theirs")
    from_elsewhere("huggingface", str(tmp_path / "theirs"), str(tmp_path / "m"), Options())
    to_elsewhere("huggingface", str(tmp_path / "m"), str(tmp_path / "again"))
    before, after = (load_file(tmp_path / n / "model.safetensors") for n in ("theirs", "again"))
    assert_equal_tensors(after, before)


@pytest.mark.slow  # exports a model
def test_a_savedmodel_takes_ids(made, tmp_path, capsys):
    """TensorFlow cannot tokenize by BPE; the answers to ids are the model's."""
    description = export(load_model_directory(str(made / "model")), str(tmp_path / "s"), "made")
    assert description["signatures"]
    for signature in description["signatures"].values():
        assert "string" not in {own["dtype"] for own in signature["inputs"].values()}
    assert "embeddings" in capsys.readouterr().err
    encode = tf.saved_model.load(str(tmp_path / "s")).signatures["token_ids"]
    features = random_features(3, 9, (9, 4, 1))
    found = encode(**{name: tf.constant(value) for name, value in features.items()})
    expected = load_encoder(str(made / "model"))(features).sequence
    np.testing.assert_allclose(found["tokens"][0], expected[0], atol=1e-5)
