"""Heads of fine-tuned models, and models of text embeddings, in Hugging Face's files: there and
back, and as transformers and sentence-transformers have them. The latter needs the extra `peers`
(see tests/peers.py), without which it is skipped."""

import json

import numpy as np
import pytest
import tensorflow as tf

import convbert
from convbert.checkpoints import formats, huggingface
from convbert.checkpoints.formats import to_elsewhere
from convbert.checkpoints.model_directory import Options
from convbert.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from convbert.finetune.load import load_fine_tuned
from convbert.model import EncoderOutput
from convbert.model.heads.embedding import EmbeddingHead
from convbert.model.heads.task import TaggingHead
from tests import peers
from tests.finetune.kinds_support import OTHER, rejects
from tests.huggingface_support import change_tensors
from tests.model_support import TINY_MODERN, random_features, slow_but
from tests.serving.support import assert_equal, fine_tuned, task

PLAIN = {"token_mixer": "attention", "head_ratio": 1, "linear_groups": 1}
WIDE = {**PLAIN, "embedding_size": 16}  # as its layers, which BERT needs
# A kind, its settings, the encoder's, and what transformers calls that.
DENSE, POOLER = {"classifier": "dense"}, {"classifier": "pooler"}
CASES = {
    "convbert labels": ("classification", DENSE, {}, "ConvBertForSequenceClassification"),
    "bert labels": ("classification", POOLER, WIDE, "BertForSequenceClassification"),
    "convbert several labels": ("multi_label", DENSE, {}, "ConvBertForSequenceClassification"),
    "convbert tags": ("tagging", {}, {}, "ConvBertForTokenClassification"),
    "electra tags": ("tagging", {}, PLAIN, "ElectraForTokenClassification"),
}
SLOW = pytest.mark.slow
LABELS = "convbert labels"
TAGS = {"words": "words", "tags": "tags"}
SAME_SLOTS = {"convbert several labels", "electra tags"}  # as those of another case


def run_of(folder, case, hparams=None):
    kind, own, config, _ = CASES[case]
    config = {"mask_padding": False, "num_hidden_layers": 2, **config}
    return fine_tuned(folder, task(kind), hparams={**own, **(hparams or {})}, **config)[0]


def written(tmp_path, case):
    objective = run_of(tmp_path / "run", case)
    formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "theirs"))
    return objective, tmp_path / "theirs"


def reread(folder, case, **changes):
    values = {**task(CASES[case][0]).to_json(), **changes}
    values = {name: value for name, value in values.items() if value is not None}
    path, output = folder.parent / "task.json", folder.parent / "back"
    path.write_text(json.dumps(values))
    formats.from_elsewhere("huggingface", str(folder), str(output), Options(task=str(path)))
    return load_fine_tuned(str(output)).objective


def features(objective):
    return random_features(3, 12, (12, 9, 5), objective.encoder.config.vocab_size)


@pytest.mark.parametrize("case", slow_but(CASES.keys() - SAME_SLOTS, CASES))
def test_there_and_back(tmp_path, case):
    objective, folder = written(tmp_path, case)
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == [CASES[case][-1]]
    back = reread(folder, case)
    record = load_fine_tuned(str(tmp_path / "back")).record
    assert record["hparams"]["max_seq_length"] == 24
    before = record["run_settings"].get("pretraining", {})
    assert before.get("objective") == ("masked_lm" if case.startswith("bert") else None)
    batch = features(objective)
    expected, received = objective.predict(batch), back.predict(batch)
    assert_equal(received, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("labels", "order"), [(("good", "bad", "fair"), [2, 0, 1]), (None, [0, 1, 2])]
)
def test_labels_in_another_order_or_not_declared(tmp_path, labels, order):
    objective, folder = written(tmp_path, LABELS)
    batch = features(objective)
    expected = objective.predict(batch)["logits"].numpy()
    back = reread(folder, LABELS, labels=labels)  # there: bad, fair, good
    received = back.predict(batch)["logits"].numpy()
    np.testing.assert_allclose(received, expected[:, order], atol=1e-6)


def test_a_linear_head_is_left_out(tmp_path):
    """transformers has no such: the encoder is written, as it was before."""
    objective = run_of(tmp_path / "run", LABELS, {"classifier": "linear"})
    notes = formats.to_elsewhere("huggingface", str(tmp_path / "run"), str(tmp_path / "out"))
    said = json.loads((tmp_path / "out" / "config.json").read_text())
    assert said["architectures"] == ["ConvBertModel"]
    assert any("task head is left out" in note for note in notes)
    encoder = huggingface.read(str(tmp_path / "out"), Options()).objective.encoder
    np.testing.assert_equal(encoder.get_weights(), objective.encoder.get_weights())
    run_of(tmp_path / "bert", "bert labels", {"classifier": "linear"})
    record = json.loads((tmp_path / "bert" / "hparams.json").read_text())
    record["run_settings"]["pretraining"] = {"objective": "masked_lm"}  # else it is an ELECTRA
    (tmp_path / "bert" / "hparams.json").write_text(json.dumps(record))
    formats.to_elsewhere("huggingface", str(tmp_path / "bert"), str(tmp_path / "theirs"))
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["architectures"] == ["BertModel"]
    run_of(tmp_path / "pooled", LABELS, {"classifier": "pooler"})  # which is of BERT alone
    with rejects("classifier"):
        formats.to_elsewhere("huggingface", str(tmp_path / "pooled"), str(tmp_path / "none"))
    whole = Vocabulary(("[PAD]", "<unk>", "<eos>", "[MASK]", "the"), False, tokenizer="words")
    fine_tuned(tmp_path / "whole", task("tagging"), whole)
    with rejects("wordpiece"):
        formats.to_elsewhere("huggingface", str(tmp_path / "whole"), str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("changes", "change", "said"),
    [
        ({"labels": ["bad", "good"]}, dict, "id2label"),
        ({"kind": "multi_label", "metrics": None}, dict, "problem_type"),
        pytest.param({"labels": ["bad", "fair", "best"]}, dict, "id2label", marks=SLOW),
        pytest.param(
            {"kind": "regression", "labels": None, "metrics": None}, dict, "kind", marks=SLOW
        ),
        ({"kind": "tagging", "columns": TAGS, "metrics": None}, dict, "classifier.weight"),
        ({}, lambda held: held | {"classifier.x": np.ones([2, 2], np.float32)}, "classifier.x"),
    ],
)
def test_another_head_is_an_error(tmp_path, changes, change, said):
    _, folder = written(tmp_path, LABELS)
    change_tensors(folder, change)
    with rejects(said):
        reread(folder, LABELS, **changes)
    assert not (tmp_path / "back").exists()


def assert_transformers_computes(objective, case, folder):
    """It loads every tensor and no other."""
    batch, head = features(objective), objective.head
    found = peers.ask(peers.outputs, CASES[case][-1], folder, batch)
    assert not any(found[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    output = objective.encoder(batch)
    logits = head(output.sequence if isinstance(head, TaggingHead) else output.pooled)
    np.testing.assert_allclose(logits, found["outputs"]["logits"], atol=2e-5)
    assert found["labels"] == tuple(task(CASES[case][0]).labels)


@pytest.mark.slow  # see above for what it needs
@pytest.mark.parametrize("case", CASES)
def test_transformers_gives_our_outputs_and_ours_its(tmp_path, transformers, case):
    objective, folder = written(tmp_path, case)
    assert_transformers_computes(objective, case, folder)
    peers.ask(peers.make_like, CASES[case][-1], folder)
    assert_transformers_computes(reread(folder, case), case, folder)


TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w1 w2", "W1, w2!", " ".join(["w1"] * 40)]
ATTENTION = {"token_mixer": "attention", "head_ratio": 1}
ENCODERS = {"convbert": {"linear_groups": 1}, "modern": {"tiny": TINY_MODERN}}


@pytest.fixture(scope="module", params=["mean", "pooled", "convbert", "modern"])
def folders(request, tmp_path_factory):
    """A run, what it converts to, and the batch size at which both have one vector."""
    folder = tmp_path_factory.mktemp("folders")
    vocabulary = Vocabulary((*SPECIAL_TOKENS, *OTHER, ",", "!"))
    name, own = request.param, task("embedding")
    pooling, size = "mean" if name in ENCODERS else name, 1 if name == "convbert" else 3
    encoder = ENCODERS.get(name, ATTENTION)
    fine_tuned(folder / "run", own, vocabulary, hparams={"pooling": pooling}, **encoder)
    notes = to_elsewhere("huggingface", str(folder / "run"), str(folder / "theirs"))
    assert any("SentenceTransformer" in note for note in notes)
    assert any("batch_size=1" in note for note in notes) == (size == 1)
    return str(folder / "run"), folder / "theirs", pooling, size


def test_the_files(folders):
    _, theirs, pooling, _ = folders
    said = json.loads((theirs / "1_Pooling" / "config.json").read_text())
    assert said["pooling_mode_mean_tokens"] == (pooling == "mean") != said["pooling_mode_cls_token"]
    for module in json.loads((theirs / "modules.json").read_text()):
        assert (theirs / module["path"] / "config.json").exists()
    lengths = json.loads((theirs / "sentence_bert_config.json").read_text())
    assert lengths == {"max_seq_length": 24}


def test_sentence_transformers_gives_the_same_vectors(folders):
    peers.need("sentence_transformers")
    ours, theirs, _, size = folders
    found = peers.ask(peers.sentence_vectors, theirs, TEXTS, size)
    np.testing.assert_allclose(found, convbert.load(ours).embed(TEXTS), atol=1e-5)


@pytest.mark.parametrize("G", [2, 3])
def test_the_loss_is_that_of_sentence_transformers(G):
    peers.need("sentence_transformers")
    draw = np.random.default_rng(G)
    vectors = draw.normal(size=(7 * G, 12)).astype(np.float32)
    states = tf.Variable(vectors)
    batch = {"text": tf.range(7 * G), "weight": tf.ones(7 * G), "input_mask": tf.ones([7 * G, 1])}
    with tf.GradientTape() as tape:
        output = EncoderOutput(states[:, None], states[:, 0], None, (), (), ())
        loss = tf.reduce_mean(EmbeddingHead(G).loss(output, batch, training=True))
    expected, gradient = peers.ask(peers.ranking_loss, [vectors[i::G] for i in range(G)], 20.0)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    expected = np.stack(gradient, 1).reshape(7 * G, 12)
    np.testing.assert_allclose(tape.gradient(loss, states), expected, atol=1e-6)
