"""The builder: checks and plans, starts building the shards, and finishes the data folder.

During a build, everything is in `DATA_DIR/unfinished_build/`: the settings, a learned vocabulary,
the record files, and a small JSON file per finished shard. A stopped build resumes from there. At
the end, the folders get their final names and the manifest is written. Only one build at a time
can use a folder.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import sys
from typing import Any

from convbert.common import files, storage
from convbert.common.errors import InputError, warn
from convbert.common.locks import locked
from convbert.common.settings import differences
from convbert.data import build_options, manifest, shard_processes, shards
from convbert.data.build_options import BuildOptions, BuildSettings
from convbert.data.corpus import MAX_UNDECODABLE_SHARE, NAMES, listing, open_corpus
from convbert.data.input_pipeline import SPLITS, record_files
from convbert.data.readers.base import Corpus
from convbert.data.vocabulary import (
    SWITCHES_FILE,
    VOCABULARY_FILES,
    Vocabulary,
    vocabulary_file,
    warn_of_capitals,
)
from convbert.data.vocabulary_learning import learn_vocabulary

UNFINISHED = "unfinished_build"
SHARD_BYTES = 32 << 20
MIN_SHARDS = 8
VOCABULARY_SAMPLE_CHARACTERS = 64 << 20
_COUNTS: tuple[str, ...] = ("documents", "lines", "characters", "tokens", "tokens_kept")
_COUNTS += ("unknown_tokens", "examples", "padding")


def build(options: BuildOptions) -> dict[str, Any]:
    """Builds a data folder, or resumes its build, unless it is complete; returns its manifest.

    InputError for a bad corpus, vocabulary, option or folder, or if another build is running in it.
    """
    _reject_overlap(options)
    finished = manifest.read_manifest(options.output_dir)
    # Nothing is written to a finished folder.
    with contextlib.nullcontext() if finished is not None else locked(options.output_dir):
        corpus, heldout = open_corpus(options.corpus, options.corpus_format), None
        if options.heldout_corpus is not None:
            heldout = open_corpus(options.heldout_corpus, options.corpus_format)
        switches = {"do_lower_case": options.do_lower_case, "strip_accents": options.strip_accents}
        given = Vocabulary.load(options.vocab, **switches) if options.vocab is not None else None
        settings = _resolve_settings(options, corpus, given, heldout)
        if finished is not None:
            return _checked(options.output_dir, finished, settings)

        work = _unfinished_folder(options, settings)
        vocabulary = given or _learned_vocabulary(corpus, settings, work)
        job = shard_processes.Job(corpus, vocabulary, settings, work, heldout)
        if done := settings.num_shards - len(job.pending()):
            print(f"resuming: {done} of {settings.num_shards} shards are there already")
        shard_processes.build_shards(job, options.num_processes)
        return _finish(options, job)


def _reject_overlap(options: BuildOptions) -> None:
    """Raises InputError if a corpus holds the output, or shares text with the held-out one.

    The next start would read the records as text; held-out text would be trained on.
    """
    named = options.corpus_format in NAMES

    def places(said: str) -> list[str]:
        as_said = named or storage.is_url(said)
        names = said.split(",") if named else [said]
        return [os.path.join(name if as_said else os.path.realpath(name), "") for name in names]

    pairs = [("corpus", "heldout_corpus")]
    pairs += [] if named else [("corpus", "output_dir"), ("heldout_corpus", "output_dir")]
    for pair in pairs:
        one, other = (getattr(options, name) for name in pair)
        for a, b in itertools.product(places(one), places(other)) if one and other else ():
            if b.startswith(a) or (pair[1] == "heldout_corpus" and a.startswith(b)):
                raise InputError(f"--{pair[1]} should be outside of --{pair[0]}. Received: {other}")


def _resolve_settings(
    options: BuildOptions, corpus: Corpus, given: Vocabulary | None, heldout_corpus: Corpus | None
) -> BuildSettings:
    text = _identity(corpus)
    # At least MIN_SHARDS, so that small corpora are also mixed and distributed well.
    by_size = max(MIN_SHARDS, -(-text["bytes"] // SHARD_BYTES))
    vocabulary = _vocabulary_settings(options, given)
    contiguous = build_options.separates_lines(vocabulary["tokenizer"], options.corpus_format)
    return BuildSettings(
        corpus_format=options.corpus_format,
        **{f"corpus_{name}": value for name, value in text.items()},
        vocabulary=vocabulary,
        max_seq_length=options.max_seq_length,
        heldout_fraction=0.0 if heldout_corpus else options.heldout_fraction,
        seed=options.seed,
        num_shards=min(options.num_shards or by_size, len(corpus.units)),
        example_layout=options.example_layout or ("contiguous" if contiguous else "segments"),
        heldout_corpus=_identity(heldout_corpus) if heldout_corpus else None,
    )


def _identity(corpus: Corpus) -> dict[str, Any]:
    """Returns the fingerprint of a corpus: number of `units`, `bytes`, SHA-256 `digest`."""
    sizes = [shards.unit_bytes(unit) for unit in corpus.units]
    identity = [
        [unit.name, unit.start, unit.end, list(unit.members), size, shards.unit_digest(unit)]
        for unit, size in zip(corpus.units, sizes)
    ]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return {"units": len(corpus.units), "bytes": sum(sizes), "digest": digest}


def _vocabulary_settings(options: BuildOptions, given: Vocabulary | None) -> dict[str, Any]:
    if given is not None:
        if options.vocab_size not in (None, given.size):
            raise InputError(
                f"--vocab_size should be {given.size}, the size of {options.vocab}, or left out."
                f" Received: {options.vocab_size}"
            )
        if options.tokenizer not in (None, given.tokenizer):
            raise InputError(
                f"--tokenizer should be {given.tokenizer}, for which {options.vocab} was made."
                f" Received: {options.tokenizer}"
            )
        if given.tokenizer == "words" and options.strip_accents:
            raise InputError(f"--strip_accents should be false for the words of {options.vocab}")
        if (options.do_lower_case is None) == given.do_lower_case:
            setting = "--nodo_lower_case" if given.do_lower_case else "--do_lower_case"
            warn_of_capitals(given, f"{options.vocab}", setting)
        source = {"learned": False, "vocab_size": given.size, "digest": given.digest}
        lower, strip, tokenizer = given.do_lower_case, given.strip_accents, given.tokenizer
    else:
        tokenizer = options.tokenizer or "wordpiece"
        size = options.vocab_size or build_options.DEFAULT_VOCAB_SIZES[tokenizer]
        source = {"learned": True, "vocab_size": size}
        lower = tokenizer == "wordpiece" if options.do_lower_case is None else options.do_lower_case
        strips = {"wordpiece": lower, "sentencepiece": True}.get(tokenizer, False)
        strip = strips if options.strip_accents is None else options.strip_accents
    return source | {"do_lower_case": lower, "strip_accents": strip, "tokenizer": tokenizer}


def _reject_difference(
    folder: str, before: dict[str, Any], now: BuildSettings, remedy: str = ""
) -> None:
    if different := differences(before, dataclasses.asdict(now)):
        raise InputError(
            f"{folder} was built with other settings ({'; '.join(different)}): give the same ones"
            f" or another --output_dir{remedy}"
        )


def _checked(folder: str, finished: dict[str, Any], settings: BuildSettings) -> dict[str, Any]:
    """Returns the manifest of a finished folder; checks its settings and files."""
    _reject_difference(folder, finished.get("settings", {}), settings)
    for split in finished["splits"]:
        record_files(folder, split)  # checks the files in the manifest
    splits = finished["splits"].items()
    numbers = ", ".join(f"{counts['examples']:,} {split} examples" for split, counts in splits)
    print(f"{folder} is complete: {numbers}")
    return finished


def _unfinished_folder(options: BuildOptions, settings: BuildSettings) -> str:
    """Finds the folder of the unfinished build with the same settings, or creates one."""
    output_dir, vocab = options.output_dir, options.vocab
    work = os.path.join(output_dir, UNFINISHED)
    settings_file = os.path.join(work, "settings.json")
    resumed = storage.exists(settings_file)
    if resumed:
        remedy = f", or remove {work} to start over"
        _reject_difference(output_dir, files.read_json(settings_file), settings, remedy)
    else:
        names = [*SPLITS.values()]
        if vocab is not None and storage.isdir(vocab):
            vocab = os.path.join(vocab, vocabulary_file(vocab))
        places = [storage.abspath(os.path.join(output_dir, name)) for name in VOCABULARY_FILES]
        if vocab is None or storage.abspath(vocab) not in places:
            names += [*VOCABULARY_FILES, SWITCHES_FILE]
        foreign = [name for name in names if storage.exists(os.path.join(output_dir, name))]
        if foreign:
            raise InputError(
                f"{output_dir} already holds {' and '.join(foreign)} of another origin: "
                "give another --output_dir"
            )
    for folder in (work, *(os.path.join(work, name) for name in SPLITS.values())):
        storage.makedirs(folder)
        for leftover in storage.matching(folder, "*.tmp-*"):  # left by a killed process
            # On object stores these are files.
            (storage.rmtree if storage.isdir(leftover) else storage.remove)(leftover)
    if not resumed:
        files.write_json(settings_file, dataclasses.asdict(settings))
    return work


def _learned_vocabulary(corpus: Corpus, settings: BuildSettings, work: str) -> Vocabulary:
    """Learns the vocabulary, or loads the one that the interrupted build learned."""
    if storage.exists(os.path.join(work, vocabulary_file(work))):
        return Vocabulary.load(work)
    wanted = settings.vocabulary
    size, tokenizer = wanted["vocab_size"], wanted["tokenizer"]
    most = f"at most {size}" if size else "all"
    print(f"learning a vocabulary of {most} tokens ({tokenizer})", flush=True)
    sample = sys.maxsize if tokenizer == "words" else VOCABULARY_SAMPLE_CHARACTERS
    lines = shards.sample_training_lines(corpus, settings, sample)
    names = ("tokenizer", "do_lower_case", "strip_accents")
    vocabulary = learn_vocabulary(lines, size, **{name: wanted[name] for name in names})
    vocabulary.save(work)
    return vocabulary


def _finish(options: BuildOptions, job: shard_processes.Job) -> dict[str, Any]:
    """Adds up the shards' counts, moves the record files to their places, writes the manifest."""
    output_dir, work, settings = options.output_dir, job.work, job.settings
    finished = [files.read_json(file) for file in storage.matching(work, "shard-*.json")]
    problems = sum((collections.Counter(s["problems"]) for s in finished), collections.Counter())
    splits: dict[str, collections.Counter] = {s: collections.Counter() for s in settings.splits}
    for shard in finished:
        for split in splits:
            splits[split].update(shard["splits"][split])
    characters = sum(counts["characters"] for counts in splits.values())
    replaced = problems["undecodable_bytes"]
    if replaced > MAX_UNDECODABLE_SHARE * characters or not splits["train"]["examples"]:
        storage.rmtree(work)
        raise InputError(
            f"the corpus {options.corpus} should hold UTF-8 text to train on, with at most"
            f" {MAX_UNDECODABLE_SHARE:.1%} of other bytes per character. Received:"
            f" {characters:,} characters, {splits['train']['documents']:,} training documents and"
            f" {listing(problems) or 'no problems'}"
        )
    if replaced:
        warn(f"{replaced:,} bytes are not UTF-8 and were replaced")
    content = {
        "settings": dataclasses.asdict(settings),
        "vocabulary_digest": job.vocabulary.digest,
        "vocabulary_size": job.vocabulary.size,  # a learned one may be smaller than requested
        "splits": {
            split: _with_shares(counts, settings.max_seq_length) for split, counts in splits.items()
        },
        "problems": dict(sorted(problems.items())),
        "files": dict(sorted(item for shard in finished for item in shard["files"].items())),
    }
    for folder in (SPLITS[split] for split in splits):
        files.move_folder(os.path.join(work, folder), os.path.join(output_dir, folder))
    job.vocabulary.save(output_dir)
    files.write_json(os.path.join(output_dir, manifest.MANIFEST), content)
    storage.rmtree(work)
    print(_summary(output_dir, content))
    return content


def _with_shares(counts: collections.Counter, max_seq_length: int) -> dict[str, Any]:
    """Adds the shares of kept tokens, [UNK] and padding to the counts of a split."""
    positions = counts["examples"] * max_seq_length
    words = {"words": counts["words"]} if "words" in counts else {}  # of the contiguous layout
    return {
        **{name: counts[name] for name in _COUNTS},
        **words,
        "tokens_kept_share": counts["tokens_kept"] / max(1, counts["tokens"]),
        "unknown_token_share": counts["unknown_tokens"] / max(1, counts["tokens"]),
        "padding_share": counts["padding"] / max(1, positions),
    }


def _summary(output_dir: str, content: dict[str, Any]) -> str:
    """Returns the command's summary: counts by split, and the corpus's problems."""
    lines = [f"{output_dir}: vocabulary of {content['vocabulary_size']:,} tokens"]
    for split, counts in content["splits"].items():
        lines.append(
            f"  {split:8} {counts['documents']:>11,} documents {counts['tokens']:>14,} tokens "
            f"({counts['tokens_kept_share']:.2%} kept, {counts['unknown_token_share']:.2%} unknown)"
            f" {counts['examples']:>11,} examples ({counts['padding_share']:.1%} padding)"
        )
    if content["problems"]:
        lines.append(f"  skipped or repaired: {listing(content['problems'])}")
    if not content["splits"].get("heldout", {"examples": 1})["examples"]:
        lines.append("  nothing is held out: the corpus is too small for its --heldout_fraction")
    return "\n".join(lines)
