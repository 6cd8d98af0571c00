"""Builds pre-training data: corpus -> vocabulary -> TFRecords.

    python build_pretraining_data.py --corpus wiki/ --corpus_format wikiextractor \\
        --vocab bert_uncased/vocab.txt --output_dir data_wiki

Run it again to resume after an interruption.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  before TensorFlow

# isort: split
import os

from absl import app, flags

# Before TensorFlow is imported: hides accelerators, which the builder does not use.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

from convbert.common.errors import InputError, main_with_clear_errors, require_flags
from convbert.common.files import check_there
from convbert.common.settings import field_names
from convbert.data import corpus
from convbert.data.build_options import LAYOUTS, BuildOptions
from convbert.data.vocabulary import TOKENIZERS

FLAGS = flags.FLAGS
flags.DEFINE_string("corpus", "", "Path of the text, or names of packages, by --corpus_format.")
flags.DEFINE_enum("corpus_format", "text", corpus.CORPUS_FORMATS, "Format; see docs/guide.md.")
flags.DEFINE_string("output_dir", None, "Data folder to create; --data_dir of run_pretraining.py.")
flags.DEFINE_string("vocab", None, "*.txt, *.model or *.json file, or a folder. Default: learned.")
flags.DEFINE_integer("vocab_size", None, "Size of a learned vocabulary. Default: by --tokenizer.")
flags.DEFINE_enum("tokenizer", None, list(TOKENIZERS), "Tokens to learn. Default: wordpiece.")
flags.DEFINE_bool("do_lower_case", None, "Lower-casing. Default: recorded, or on for word pieces.")
flags.DEFINE_bool("strip_accents", None, "Removal of accents. Default: recorded, or as the casing.")
flags.DEFINE_integer("max_seq_length", 128, "Maximum sequence length.")
flags.DEFINE_enum("example_layout", None, LAYOUTS, "Layout of examples; see docs/reference.md.")
flags.DEFINE_string("heldout_corpus", None, "Separate held-out text, in the format of --corpus.")
flags.DEFINE_float("heldout_fraction", 0.01, "Share of the text to hold out for evaluation.")
flags.DEFINE_integer("seed", 0, "Seed of the examples, their order and the split.")
flags.DEFINE_integer("num_shards", None, "Files per split. Default: one per 32 MiB, at least 8.")
flags.DEFINE_integer("num_processes", None, "Processes, with one result. Default: by the text.")


def main(_: list[str]) -> None:
    """Builds the data."""
    if FLAGS.heldout_corpus and FLAGS["heldout_fraction"].present:
        raise InputError("--heldout_corpus is the only held-out text: leave out --heldout_fraction")
    require_flags(FLAGS, {"corpus": "a file or a folder of text; see --corpus_format"})
    are_paths = FLAGS.corpus_format not in corpus.NAMES
    for name in ("vocab", "corpus", "heldout_corpus") if are_paths else ("vocab",):
        check_there(f"--{name}", FLAGS[name].value)
    options = BuildOptions(**{name: FLAGS[name].value for name in field_names(BuildOptions)})
    from convbert.data import build  # imports TensorFlow, which takes seconds

    build.build(options)


if __name__ == "__main__":
    flags.mark_flag_as_required("output_dir")
    app.run(main_with_clear_errors(main))
