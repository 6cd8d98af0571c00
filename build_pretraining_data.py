"""Builds pre-training data: corpus -> vocabulary -> TFRecords.

    python build_pretraining_data.py --corpus wiki/ --corpus_format wikiextractor \\
        --vocab bert_uncased/vocab.txt --output_dir data_wiki

    python build_pretraining_data.py ... --runner beam -- --runner=FlinkRunner --flink_master=...

Run it again to resume after an interruption. See data/build.py for what the folder holds, and
docs/scale.md for Apache Beam.
Exit status 0: done; 1: an error; 130: stopped by Ctrl-C; 129, 143 (SIGHUP, SIGTERM): run it again.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import functools
import importlib.util
import os

from absl import app, flags, logging

# Before TensorFlow is imported: no accelerator, which the builder has no use for.
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import storage
from data import corpus
from data.build_options import LAYOUTS, BuildOptions
from data.vocabulary import TOKENIZERS, Vocabulary
from errors import InputError, main_with_clear_errors, require_flags

_CORPUS = flags.DEFINE_string(
    "corpus", "", "File, folder or data set name of the text, as --corpus_format says."
)
_CORPUS_FORMAT = flags.DEFINE_enum(
    "corpus_format", "text", corpus.CORPUS_FORMATS, "Format of the corpus; see docs/guide.md."
)
_OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Data folder to make; --data_dir of run_pretraining.py."
)
_VOCAB = flags.DEFINE_string(
    "vocab",
    None,
    "vocab.txt, a SentencePiece model (*.model), or a folder that holds one. Default: a vocabulary"
    " is learned.",
)
_VOCAB_SIZE = flags.DEFINE_integer(
    "vocab_size",
    None,
    "Size of the vocabulary that is learned. Default: 30522 word pieces, 32000 pieces of"
    " SentencePiece, or all words.",
    lower_bound=100,
)
_TOKENIZER = flags.DEFINE_enum(
    "tokenizer",
    None,
    list(TOKENIZERS),
    "Tokens of a vocabulary that is learned. Default: wordpiece.",
)
_DO_LOWER_CASE = flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Lower-casing of the text. Default: as saved beside --vocab, else true for word pieces alone.",
)
_STRIP_ACCENTS = flags.DEFINE_bool(
    "strip_accents",
    None,
    "Removal of accents. Default: as saved beside --vocab, else as the casing; with SentencePiece"
    " true, with words false.",
)
_MAX_SEQ_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "Maximum sequence length.")
_EXAMPLE_LAYOUT = flags.DEFINE_enum(
    "example_layout",
    None,
    LAYOUTS,
    "Examples: segments of one document, contiguous blocks of a stream of documents, or such blocks"
    " in the order of the text for training, too, which a memory needs. Default: "
    "segments; contiguous for words and for corpora of language models.",
)
_HELDOUT_CORPUS = flags.DEFINE_string(
    "heldout_corpus", None, "Held-out text of its own, in the format of --corpus."
)
_HELDOUT_FRACTION = flags.DEFINE_float(
    "heldout_fraction", 0.01, "Share of the text that is held out for evaluation."
)
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the examples, their order and the split.")
_NUM_SHARDS = flags.DEFINE_integer(
    "num_shards", None, "Record files per split. Default: one for each 32 MiB of text, at least 8."
)
_NUM_PROCESSES = flags.DEFINE_integer(
    "num_processes",
    None,
    "Number of processes. Default: one per core, fewer for little text. The result is the same.",
)
_RUNNER = flags.DEFINE_enum(
    "runner",
    "local",
    ["local", "beam"],
    "Processes of this machine, or an Apache Beam pipeline, whose options follow `--`.",
)
_STRICT = flags.DEFINE_bool(
    "strict",
    False,
    "Rejection of bytes that are not UTF-8, which are otherwise replaced and counted.",
)
_MAX_UNDECODABLE_SHARE = flags.DEFINE_float(
    "max_undecodable_share",
    0.1,
    "Largest number of bytes that are not UTF-8 per character; 1 accepts anything.",
)


def main(argv: list[str]) -> None:
    """Builds the data that the flags ask for."""
    check_runner(argv[1:])
    if _HELDOUT_CORPUS.value and _HELDOUT_FRACTION.present:
        raise InputError("--heldout_corpus is all that is held out: leave out --heldout_fraction")
    named = {"vocab": _VOCAB.value}
    if _CORPUS_FORMAT.value not in corpus.NOT_PATHS:
        require_flags(flags.FLAGS, {"corpus": "a file or a folder of text; see --corpus_format"})
        named |= {"corpus": _CORPUS.value, "heldout_corpus": _HELDOUT_CORPUS.value}
    for name, path in named.items():
        if path and not storage.exists(path):
            raise InputError(f"--{name} {path}: there is no such file or folder")
    options = BuildOptions(
        corpus=_CORPUS.value,
        corpus_format=_CORPUS_FORMAT.value,
        output_dir=_OUTPUT_DIR.value,
        vocab=_VOCAB.value,
        vocab_size=_VOCAB_SIZE.value,
        do_lower_case=_DO_LOWER_CASE.value,
        strip_accents=_STRIP_ACCENTS.value,
        max_seq_length=_MAX_SEQ_LENGTH.value,
        heldout_fraction=_HELDOUT_FRACTION.value,
        seed=_SEED.value,
        num_shards=_NUM_SHARDS.value,
        strict=_STRICT.value,
        max_undecodable_share=_MAX_UNDECODABLE_SHARE.value,
        num_processes=_NUM_PROCESSES.value,
        example_layout=_EXAMPLE_LAYOUT.value,
        tokenizer=_TOKENIZER.value,
        heldout_corpus=_HELDOUT_CORPUS.value,
    )
    if options.vocab is not None:  # which is said before seconds have gone by
        Vocabulary.load(options.vocab)
    from data import build  # TensorFlow: it takes seconds

    if _RUNNER.value == "local":
        build.build(options)
    else:
        from data import beam_build  # Beam: it takes seconds and is optional

        logging.set_verbosity(logging.WARNING)  # Beam logs a line for every step of its own
        build.build(options, functools.partial(beam_build.build_shards, arguments=argv[1:]))


def check_runner(arguments: list[str]) -> None:
    """Raises InputError where arguments and flags are not of the runner, or Beam is missing."""
    if _RUNNER.value == "local":
        if arguments:
            raise InputError(f"Unknown argument {arguments[0]!r}; see --help")
    elif _NUM_PROCESSES.value is not None:
        raise InputError("--num_processes is for --runner local: Beam's options follow `--`")
    elif importlib.util.find_spec("apache_beam") is None:
        raise InputError(
            "--runner beam needs Apache Beam, see requirements-beam.txt: it is not installed"
        )


if __name__ == "__main__":
    flags.mark_flag_as_required("output_dir")
    app.run(main_with_clear_errors(main))
