"""Compares parameters and training FLOPs with the papers' figures.

    convbert flops
    convbert flops --hparams configs/convbert_small.json [--plugins FILE]

Prints Table 3 of the ConvBERT supplement, Table IV of the ALE report and Table 5 of the supplement,
with a reason where FLOPs are not within 10 % of ours. With --hparams, prints only those of these
hyper-parameters; FLOPs are "not counted" if the objective or the backbone does not count its
operations.
"""

from __future__ import annotations

import convbert.common.startup  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import math
import sys
import textwrap
from typing import Any

from convbert.analysis.operations import (
    ELECTRA,
    EXECUTED,
    count_parameters,
    hparams_of,
    recipe_hparams,
    training_flops,
)
from convbert.analysis.tables import format_table, parse_arguments
from convbert.common.errors import main_with_clear_errors
from convbert.common.settings import present
from convbert.finetune.published import PUBLISHED, Published
from convbert.model import SIZES, EncoderConfig
from convbert.model.flops import token_mixer
from convbert.pretrain.hparams import PretrainingHParams

CONVENTION = """\
Convention (flops_computation.py of ELECTRA, which reproduces its own paper's BERT rows): a
multiply-add is two operations; the backward pass costs one forward pass; an embedding lookup is a
product with one-hot vectors; softmax, normalisation, activations and dropout count a few operations
per element. Ratios are of this convention. "Executed" counts what a training step does: two forward
passes for the backward pass, nothing for lookups. "Params" are the encoder's, without heads and
generator."""


# Settings missing in Table 3: ConvBERT's batch and length are from its Table 1, others from the
# cited papers: Devlin et al. 2019 (BERT-base), Liu et al. 2019 (RoBERTa), Clark et al. 2020
# (ELECTRA, BERT-small). Settings of the ALE rows are from Table V of the report.
TABLE_3 = tuple(r for r in PUBLISHED if r.flops and r.source.startswith("ConvBERT supplement"))
TABLE_4_ALE = tuple(r for r in PUBLISHED if r.flops and r.source.startswith("ALE report"))

# Row name -> the reason for differences or the source of settings; and the settings that the paper
# seems to have counted, whose FLOPs are printed after the note.
_DISCRIMINATOR = (
    "the figure is that of the discriminator alone, while the rows of ConvBERT-small and small-plus"
    " fit only with the generator",
    {"uniform_generator": True},
)
_EQUAL_FLOPS: tuple[str, dict[str, Any]] = (
    "not explained: with the batch, length and steps of the report's Table V no convention known"
    " here gives its figure",
    {},
)
NOTES: dict[str, tuple[str, dict[str, Any]]] = {
    "BERT-small RTD 160G 4M": (
        "ELECTRA-Small++: length 512 and, as its README says, a generator of full size. The figure"
        " is exactly that of a quarter-size generator with embeddings of 256",
        {"generator_hidden_size": 0.25, "embedding_size": 256},
    ),
    "BERT-base MLM 160G 500k": (
        "RoBERTa-base: batch 8000, 50,265 word pieces. The figure is that of BERT's vocabulary",
        {"vocab_size": 30522},
    ),
    "ConvBERT-base RTD 32G 1M": _DISCRIMINATOR,
    "ConvBERT-base RTD 32G 4M": _DISCRIMINATOR,
    "BERT-small 163k": _EQUAL_FLOPS,
    "ELECTRA-small 125k": _EQUAL_FLOPS,
    "ALE-small 162k": (
        "as above; and sharing weights between layers saves no operations, so that an update costs"
        " what ELECTRA's does and 162k updates cannot cost what 125k of ELECTRA do",
        {},
    ),
}

# Table 5 of the ConvBERT supplement: GFLOPs of a block, at an unknown length (docs/results.md).
TABLE_5 = {"self-attention": 26.5, "mixed-attention": 19.3}


def comparison_table(rows: tuple[Published, ...]) -> str:
    """Returns published rows beside our counts, with numbered notes below."""
    header = ["model, task, data, updates", "params", "paper"]
    header += ["FLOPs", "paper", "ratio", "executed", "note"]
    notes: list[str] = []
    counted: dict[tuple, int] = {}
    cells = []
    for row in rows:
        hparams = hparams_of(row)
        key = (hparams.model_size, hparams.vocab_size)
        if key not in counted:
            counted[key] = count_parameters(hparams).encoder
        note, explained_by = NOTES.get(row.name, ("", {}))
        if explained_by:
            steps = row.settings["num_train_steps"]
            each = training_flops(hparams_of(row, **explained_by)) / steps
            note += f": {each:.3g} an update, the paper's {row.flops / steps:.3g}"
        if note and note not in notes:
            notes.append(note)
        params, flops = counted[key], training_flops(hparams)
        paper_params, paper_flops = present(row.params), present(row.flops)
        cells.append(
            [
                row.name,
                f"{params / 1e6:.2f}M",
                f"{paper_params / 1e6:.3g}M",
                f"{flops:.2e}",
                f"{paper_flops:.1e}",
                f"{flops / paper_flops:.2f}",
                f"{training_flops(hparams, EXECUTED):.2e}",
                f"({notes.index(note) + 1})" if note else "",
            ]
        )
    lines = [textwrap.fill(f"({i}) {note}.", 100) for i, note in enumerate(notes, start=1)]
    return "\n".join([format_table(header, cells), "", *lines])


def block_ratio(config: EncoderConfig, length: int) -> float:
    """Returns the ratio of FLOPs of the mixed-attention block and of self-attention."""
    plain = config.replace(token_mixer="attention", head_ratio=1)
    return token_mixer(config, length).total / token_mixer(plain, length).total


def block_table() -> str:
    """Returns Table 5: the base size's mixing blocks, per token and sequence of one layer."""
    mixed = SIZES["convbert-base"]
    plain = mixed.replace(token_mixer="attention", head_ratio=1)
    header = ["block", "length", "per token", "per sequence", "mixed / self", "paper"]
    header += ["paper m / s"]
    paper_ratio, cells = TABLE_5["mixed-attention"] / TABLE_5["self-attention"], []
    for length in (128, 512):
        for name, config in (("self-attention", plain), ("mixed-attention", mixed)):
            flops = token_mixer(config, length).total
            counts = [f"{flops / 1e6:.2f}M", f"{flops * length / 1e9:.2f}G"]
            ratios = [f"{block_ratio(mixed, length):.2f}", f"{TABLE_5[name]}G"]
            cells.append([name, str(length), *counts, *ratios, f"{paper_ratio:.2f}"])
    return format_table(header, cells)


def report() -> str:
    """Returns the papers' tables beside our counts."""
    last = "ConvBERT supplement, Table 5: one block of the base size, forward pass"
    parts = {
        "ConvBERT supplement, Table 3": comparison_table(TABLE_3),
        "ALE report, Table IV": comparison_table(TABLE_4_ALE),
        last: block_table(),
    }
    tables = (f"### {title}\n\n{table}" for title, table in parts.items())
    return "\n\n".join([CONVENTION, *tables])


def report_run(hparams: PretrainingHParams) -> str:
    """Returns the parameters and training FLOPs of one run."""
    counts = [training_flops(hparams, convention) for convention in (ELECTRA, EXECUTED)]
    cells = [f"{count:,}" for count in count_parameters(hparams)]
    cells += ["not counted" if math.isnan(count) else f"{count:.2e}" for count in counts]
    header = ["model", "objective", "encoder", "with generator and heads"]
    header += [f"FLOPs, {ELECTRA.name} convention", EXECUTED.name]
    return format_table(header, [[hparams.model_size, hparams.objective.name, *cells]])


def main(argv: list[str]) -> None:
    """Prints the report."""
    arguments = parse_arguments(argv, hparams={"help": "JSON text or file of the run to count"})
    if arguments.hparams:
        print(report_run(recipe_hparams(arguments.hparams)))
    else:
        print(report())


if __name__ == "__main__":
    main_with_clear_errors(main, takes_arguments=True)(["flops", *sys.argv[1:]])
