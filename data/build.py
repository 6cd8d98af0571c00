"""The builder: checks and plans, has the shards built, and finishes the data folder.

While a build runs, everything lies in `DATA_DIR/unfinished_build/`: the settings, a learned
vocabulary, the record files, and a small JSON per finished shard. A build that was stopped resumes
from there when it is run again; the folders take their final names, and the manifest is written, at
the end. One build at a time works in a folder.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

import files
import storage
from data import manifest, shards, workers
from data.build_options import (
    DEFAULT_VOCAB_SIZES,
    LANGUAGE_MODEL_FORMATS,
    BuildOptions,
    separates_lines,
)
from data.corpus import Corpus, open_corpus
from data.input_pipeline import SPLITS, record_files
from data.sentencepiece_learning import learn_sentencepiece
from data.sentencepiece_model import MODEL_FILE
from data.vocabulary import VOCABULARY_FILE, Vocabulary, vocabulary_file
from data.vocabulary_learning import learn_vocabulary
from data.word_vocabulary import learn_words
from errors import InputError, warn
from locks import locked
from settings import differences

UNFINISHED = "unfinished_build"
SHARD_BYTES = 32 << 20
MIN_SHARDS = 8
VOCABULARY_SAMPLE_CHARACTERS = 64 << 20
_PACKAGES = ("tensorflow", "tensorflow-text", "numpy")


def build(
    options: BuildOptions, build_shards: Callable[[workers.Job], None] | None = None
) -> dict[str, Any]:
    """Builds a data folder, or resumes its build, or finds it complete.

    Args:
        options: what to build.
        build_shards: builds the shards that are not there yet. Default: processes of this machine.

    Returns:
        The manifest, also written to `DATA_DIR/manifest.json`.

    Raises:
        InputError: bad corpus, vocabulary, option or folder. What was finished before stays in
            `DATA_DIR/unfinished_build` and is used when the same build is run again. Or another
            build is at work in the folder.
    """
    if _exists(options.output_dir, manifest.MANIFEST):  # nothing will be written
        return _build(options, build_shards)
    with locked(options.output_dir):
        return _build(options, build_shards)


def _build(
    options: BuildOptions, build_shards: Callable[[workers.Job], None] | None
) -> dict[str, Any]:
    share = {"max_undecodable_share": options.max_undecodable_share}
    corpus = open_corpus(options.corpus, options.corpus_format, **share)
    switches = {"do_lower_case": options.do_lower_case, "strip_accents": options.strip_accents}
    given = Vocabulary.load(options.vocab, **switches) if options.vocab is not None else None
    heldout = None
    if options.heldout_corpus is not None:
        heldout = open_corpus(options.heldout_corpus, options.corpus_format, **share)
    settings = _resolve_settings(options, corpus, given, heldout)
    finished = manifest.read_manifest(options.output_dir)
    if finished is not None:
        remedy = "give the same ones or another --output_dir"
        _reject_difference(options.output_dir, finished["settings"], settings, remedy)
        for split in finished["splits"]:
            record_files(options.output_dir, split)  # all that the manifest lists
        _reject_undecodable(options, finished)
        print(f"{options.output_dir} is complete: {manifest.one_line(finished)}")
        return finished

    shard_settings = _shard_settings(options, settings)
    work = _unfinished_folder(options.output_dir, settings)
    vocabulary = given or _learned_vocabulary(settings["vocabulary"], corpus, shard_settings, work)
    job = workers.Job(corpus, vocabulary, shard_settings, work, heldout)
    if build_shards is None:
        workers.build_shards(job, options.num_processes)
    else:
        build_shards(job)
    return _finish(options, work, settings, shard_settings, vocabulary)


# ---------------------------------------------------------------- settings and folders


def _resolve_settings(
    options: BuildOptions,
    corpus: Corpus,
    vocabulary: Vocabulary | None,
    heldout_corpus: Corpus | None,
) -> dict[str, Any]:
    """Everything that decides the bytes of the result, as it is compared and recorded."""
    text = _identity(corpus)
    # At least MIN_SHARDS, so that small corpora are mixed and shared out well too.
    by_size = max(MIN_SHARDS, -(-text["bytes"] // SHARD_BYTES))
    source = _vocabulary_settings(options, vocabulary)
    if options.num_shards and options.num_shards > len(corpus.units):
        warn(
            f"--num_shards is {len(corpus.units)}, the number of parts of the corpus. Received:"
            f" {options.num_shards}"
        )
    return {
        "corpus_format": options.corpus_format,
        **{f"corpus_{name}": value for name, value in text.items()},
        "vocabulary": source,
        "max_seq_length": options.max_seq_length,
        "heldout_fraction": options.share_held_out,
        "seed": options.seed,
        "num_shards": min(options.num_shards or by_size, len(corpus.units)),
        "example_layout": options.layout(source["tokenizer"]),
        "heldout_corpus": _identity(heldout_corpus) if heldout_corpus else None,
    }


def _identity(corpus: Corpus) -> dict[str, Any]:
    """What tells a corpus from others: `units`, `bytes`, `digest`."""
    sizes = [shards.unit_bytes(unit) for unit in corpus.units]
    identity = [
        [unit.name, unit.start, unit.end, list(unit.members), size, shards.unit_digest(unit)]
        for unit, size in zip(corpus.units, sizes)
    ]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return {"units": len(corpus.units), "bytes": sum(sizes), "digest": digest}


def _vocabulary_settings(options: BuildOptions, given: Vocabulary | None) -> dict[str, Any]:
    if given is not None:
        if options.tokenizer not in (None, given.tokenizer):
            raise InputError(
                f"--tokenizer should be {given.tokenizer}, for which {options.vocab} was made."
                f" Received: {options.tokenizer}"
            )
        lower, strip, tokenizer = given.do_lower_case, given.strip_accents, given.tokenizer
        source: dict[str, Any] = {"learned": False, "vocab_size": given.size}
        source["digest"] = given.digest
    else:
        tokenizer = options.tokenizer or "wordpiece"
        lower, strip = options.do_lower_case, options.strip_accents
        lower = tokenizer == "wordpiece" if lower is None else lower
        if strip is None:
            strip = {"wordpiece": lower, "sentencepiece": True, "words": False}[tokenizer]
        size = options.vocab_size or DEFAULT_VOCAB_SIZES[tokenizer]
        source = {"learned": True, "vocab_size": size}
    return source | {"do_lower_case": lower, "strip_accents": strip, "tokenizer": tokenizer}


def _shard_settings(options: BuildOptions, settings: dict[str, Any]) -> shards.ShardSettings:
    tokenizer = settings["vocabulary"]["tokenizer"]
    # What has lines alone is not divided, nor are documents of tfds data sets, of unknown size.
    longest = int(settings["heldout_fraction"] * settings["corpus_bytes"]) or None
    return shards.ShardSettings(
        options.max_seq_length,
        settings["heldout_fraction"],
        options.seed,
        settings["num_shards"],
        None if options.corpus_format in LANGUAGE_MODEL_FORMATS else longest,
        settings["example_layout"],
        separates_lines(tokenizer, options.corpus_format),
        options.heldout_corpus is not None,
    )


def _reject_difference(
    folder: str, before: dict[str, Any], now: dict[str, Any], remedy: str
) -> None:
    if different := differences(before, now):
        raise InputError(
            f"{folder} was built with other settings ({'; '.join(different)}): {remedy}"
        )


def _finished_shards(work: str) -> list[dict[str, Any]]:
    """What `build_shard` returned of each shard that is finished."""
    return list(map(files.read_json, storage.matching(work, "shard-*.json")))


def _unfinished_folder(output_dir: str, settings: dict[str, Any]) -> str:
    """Finds the folder of the unfinished build, of the same settings, or makes one."""
    work = os.path.join(output_dir, UNFINISHED)
    settings_file = os.path.join(work, "settings.json")
    if not storage.exists(settings_file):
        learned = [VOCABULARY_FILE, MODEL_FILE] if settings["vocabulary"]["learned"] else []
        names = [*SPLITS.values(), *learned]
        foreign = [name for name in names if _exists(output_dir, name)]
        if foreign:
            raise InputError(
                f"{output_dir} already holds {' and '.join(foreign)} of another origin: "
                "give another --output_dir"
            )
    for folder in SPLITS.values():
        storage.makedirs(os.path.join(work, folder))
    for folder in (work, *(os.path.join(work, name) for name in SPLITS.values())):
        for leftover in storage.matching(folder, "*.tmp-*"):  # of a process that was killed
            if storage.isdir(leftover):
                storage.rmtree(leftover)
            else:  # as object stores have them
                storage.remove(leftover)
    if storage.exists(settings_file):
        remedy = f"give the same ones or another --output_dir, or remove {work} to start over"
        _reject_difference(output_dir, files.read_json(settings_file), settings, remedy)
    else:
        files.write_json(settings_file, settings)
    return work


def _exists(*parts: str) -> bool:
    return storage.exists(os.path.join(*parts))


def _learned_vocabulary(
    wanted: dict[str, Any], corpus: Corpus, settings: shards.ShardSettings, work: str
) -> Vocabulary:
    """Learns the vocabulary, or loads the one that the build before this one learned."""
    if _exists(work, vocabulary_file(work)):
        return Vocabulary.load(work)
    size, lower, tokenizer = wanted["vocab_size"], wanted["do_lower_case"], wanted["tokenizer"]
    if tokenizer == "words":
        print(f"counting words for a vocabulary of {size or 'all of them'}", flush=True)
        lines = shards.sample_training_lines(corpus, settings, sys.maxsize)
        vocabulary = learn_words(lines, size, do_lower_case=lower)
    else:
        print(f"learning a vocabulary of {size} pieces", flush=True)
        lines = shards.sample_training_lines(corpus, settings, VOCABULARY_SAMPLE_CHARACTERS)
        learn = learn_sentencepiece if tokenizer == "sentencepiece" else learn_vocabulary
        strip = wanted["strip_accents"]
        vocabulary = learn(lines, size, do_lower_case=lower, strip_accents=strip)
    vocabulary.save(work)
    return vocabulary


# ---------------------------------------------------------------- the end


def _finish(
    options: BuildOptions,
    work: str,
    settings: dict[str, Any],
    shard_settings: shards.ShardSettings,
    vocabulary: Vocabulary,
) -> dict[str, Any]:
    """Adds up the shards' counts, moves the record files to their places, writes the manifest."""
    output_dir = options.output_dir
    finished = _finished_shards(work)
    problems = sum((collections.Counter(s["problems"]) for s in finished), collections.Counter())
    splits = {split: collections.Counter() for split in shard_settings.splits}
    for shard in finished:
        for split in splits:
            splits[split].update(shard["splits"][split])
    if not splits["train"]["examples"]:
        storage.rmtree(work)
        raise InputError(
            f"the corpus should hold text to train on. Received: {sum(problems.values())} "
            f"problems ({manifest.listing(problems) or 'none'}), no training document"
        )
    content = {
        "settings": settings,
        "example_layout": shard_settings.layout,
        "vocabulary_digest": vocabulary.digest,
        "vocabulary_size": vocabulary.size,  # a learned one may be smaller than was asked for
        "splits": {
            split: manifest.with_shares(counts, settings["max_seq_length"])
            for split, counts in splits.items()
        },
        "problems": dict(sorted(problems.items())),
        "files": dict(sorted(item for shard in finished for item in shard["files"].items())),
        "versions": {name: manifest.package_version(name) for name in _PACKAGES},
    }
    _reject_undecodable(options, content)
    for folder in map(SPLITS.get, splits):
        files.move_folder(os.path.join(work, folder), os.path.join(output_dir, folder))
    vocabulary.save(output_dir)
    files.write_json(os.path.join(output_dir, manifest.MANIFEST), content)
    storage.rmtree(work)
    print(manifest.summary(output_dir, content))
    return content


def _reject_undecodable(options: BuildOptions, content: dict[str, Any]) -> None:
    """Rejects what is hardly text; the shards stay, for the same command with another share."""
    characters = sum(counts["characters"] for counts in content["splits"].values())
    replaced = content["problems"].get("undecodable_bytes", 0)
    if replaced > options.max_undecodable_share * characters:
        raise InputError(
            f"{options.corpus} should be UTF-8 text with at most {options.max_undecodable_share:g}"
            " other bytes per character (--max_undecodable_share): it is in another encoding, or no"
            f" text. Received: {replaced:,} such bytes, {characters:,} characters"
        )
    if replaced:
        warn(f"{replaced:,} bytes are not UTF-8 and were replaced")
