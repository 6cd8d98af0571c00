"""Sets parameters and training FLOPs beside the figures the papers print.

    python -m analysis.flops [--markdown]

Prints Table 3 of the ConvBERT supplement, Table IV of the ALE report and Table 5 of the supplement,
each cell marked as reproduced within 10 % or not, with the reason where not.
"""

from __future__ import annotations

import library_logs  # noqa: F401  TensorFlow reads the environment when it is imported

# isort: split
import argparse
import dataclasses
import textwrap
from typing import Any

from analysis.operations import EXECUTED, training_flops
from analysis.parameters import count_parameters
from analysis.tables import format_table
from model import SIZES, EncoderConfig
from model.operations import token_mixer
from pretrain.hparams import PretrainingHParams, resolve_hparams

TOLERANCE = 0.10  # of the paper's figure

CONVENTION = """\
Convention (flops_computation.py of ELECTRA, which reproduces its own paper's BERT rows): a
multiply-add is two operations; the backward pass costs one forward pass; an embedding lookup is a
product with one-hot vectors; softmax, normalisation, activations and dropout count a few operations
per element. Cells are marked against this convention only. "Executed" counts what a training step
does: two forward passes for the backward pass, nothing for lookups. "Params" are the encoder's,
without heads and generator."""


@dataclasses.dataclass(frozen=True)
class Published:
    """One row of a published table.

    Attributes:
        name: model, objective and data, as the table has them.
        params: published number of parameters.
        flops: published training FLOPs.
        settings: hyper-parameters (see `pretrain.hparams`) that the paper gives for the row.
        note: what there is to say where the figures differ, or where settings come from elsewhere.
        explained_by: settings that differ in what the paper seems to have counted; their FLOPs are
            printed after the note.
    """

    name: str
    params: float
    flops: float
    settings: dict[str, Any]
    note: str = ""
    explained_by: dict[str, Any] = dataclasses.field(default_factory=dict)


def _row(name, params, flops, size, steps, length=128, note="", explained_by=None, **settings):
    settings |= {"model_size": size, "num_train_steps": int(steps), "max_seq_length": length}
    return Published(name, params, flops, settings, note, explained_by or {})


_MLM = {"objective": "masked_lm"}
_RELEASED_SMALL = {
    "note": "ELECTRA-Small++: length 512 and, as its README says, a generator of full size. The"
    " figure is exactly that of a quarter-size generator with embeddings of 256",
    "explained_by": {"generator_hidden_size": 0.25, "embedding_size": 256},
}
_ROBERTA = {
    "note": "RoBERTa-base: batch 8000, 50,265 word pieces. The figure is that of BERT's vocabulary",
    "explained_by": {"vocab_size": 30522},
}
_DISCRIMINATOR = {
    "note": "the figure is that of the discriminator alone, while the rows of ConvBERT-small"
    " and small-plus fit only with the generator",
    "explained_by": {"uniform_generator": True},
}

# Table 3 of the ConvBERT supplement. It does not say batch and length: those of ConvBERT are from
# its Table 1, the others' from the papers it quotes: Devlin et al. 2019 (BERT-base), Liu et al.
# 2019 (RoBERTa), Clark et al. 2020 (ELECTRA, BERT-small).
TABLE_3 = (
    _row("BERT-small MLM 16G 1.45M", 14e6, 1.4e18, "bert-small", 1.45e6, **_MLM),
    _row("BERT-small RTD 16G 1M", 14e6, 1.4e18, "electra-small", 1e6),
    _row("BERT-small RTD 32G 1M", 14e6, 1.4e18, "electra-small", 1e6),
    _row(
        "BERT-small RTD 160G 4M",
        14e6,
        3.3e19,
        "electra-small",
        4e6,
        512,
        generator_hidden_size=1.0,
        **_RELEASED_SMALL,
    ),
    _row("ConvBERT-small MLM 16G 1.45M", 14e6, 1.3e18, "convbert-small", 1.45e6, **_MLM),
    _row("ConvBERT-small RTD 16G 1M", 14e6, 1.3e18, "convbert-small", 1e6),
    _row("ConvBERT-small RTD 32G 1M", 14e6, 1.3e18, "convbert-small", 1e6),
    _row("ConvBERT-small RTD 32G 4M", 14e6, 5.2e18, "convbert-small", 4e6),
    _row("ConvBERT-small-plus RTD 32G 1M", 17e6, 1.5e18, "convbert-medium-small", 1e6),
    _row("ConvBERT-small-plus RTD 32G 4M", 17e6, 6.0e18, "convbert-medium-small", 4e6),
    _row("BERT-base MLM 16G 1M", 110e6, 6.4e19, "bert-base", 1e6, 512, **_MLM),
    _row(
        "BERT-base MLM 160G 500k",
        125e6,
        1.0e21,
        "bert-base",
        5e5,
        512,
        train_batch_size=8000,
        vocab_size=50265,
        **_MLM,
        **_ROBERTA,
    ),
    _row("BERT-base RTD 16G 766k", 110e6, 6.4e19, "electra-base", 766e3, 512),
    _row("BERT-base RTD 160G 4M", 110e6, 3.3e20, "electra-base", 4e6, 512),
    _row("ConvBERT-base RTD 32G 1M", 106e6, 1.4e19, "convbert-base", 1e6, **_DISCRIMINATOR),
    _row("ConvBERT-base RTD 32G 4M", 106e6, 5.6e19, "convbert-base", 4e6, **_DISCRIMINATOR),
)

_BATCH = {"train_batch_size": 1024}  # Table V of the ALE report, as are steps and length
_EQUAL_FLOPS = {
    "note": "not explained: with the batch, length and steps of the report's Table V no convention"
    " known here gives its figure",
}
_ALE = {
    "note": "as above; and sharing weights between layers saves no operations, so that an update"
    " costs what ELECTRA's does and 162k updates cannot cost what 125k of ELECTRA do",
}
TABLE_4_ALE = (
    _row("BERT-small 163k", 13.5e6, 2.3e17, "bert-small", 163e3, **_MLM, **_BATCH, **_EQUAL_FLOPS),
    _row("ELECTRA-small 125k", 13.5e6, 2.3e17, "electra-small", 125e3, **_BATCH, **_EQUAL_FLOPS),
    _row("ALE-small 162k", 4.8e6, 2.3e17, "ale-small", 162e3, **_BATCH, **_ALE),
)

# Table 5 of the ConvBERT supplement: GFLOPs of a block, ms per sample, on an Intel i7-6900K.
TABLE_5 = {"self-attention": (26.5, 17.66), "mixed-attention": (19.3, 12.94)}
# Its 8 cores do 2 fused multiply-adds of 8 floats a cycle at 3.2 GHz.
PEAK_GFLOPS = 8 * 2 * 8 * 2 * 3.2


def reproduced(ours: float, published: float) -> bool:
    """Whether a figure lies within `TOLERANCE` of the published one."""
    return abs(ours / published - 1) <= TOLERANCE


def hparams_of(row: Published, **changes: Any) -> PretrainingHParams:
    """A row's hyper-parameters, resolved."""
    values = {**row.settings, **changes}
    return resolve_hparams(values, values.get("vocab_size", SIZES["bert-base"].vocab_size))


def comparison_table(rows: tuple[Published, ...], markdown: bool = False) -> str:
    """Published rows beside our counts, with numbered notes below."""
    header = ["model, task, data, updates", "params", "paper", "within 10 %"]
    header += ["FLOPs", "paper", "ratio", "within 10 %", "executed", "note"]
    notes: list[str] = []
    counted: dict[tuple, int] = {}
    cells = []
    for row in rows:
        hparams = hparams_of(row)
        key = (hparams.model_size, hparams.vocab_size)
        if key not in counted:
            counted[key] = count_parameters(hparams).encoder
        note = _note(row)
        if note and note not in notes:
            notes.append(note)
        params, flops = counted[key], training_flops(hparams)
        cells.append(
            [
                row.name,
                f"{params / 1e6:.2f}M",
                f"{row.params / 1e6:.3g}M",
                _mark(params, row.params),
                f"{flops:.2e}",
                f"{row.flops:.1e}",
                f"{flops / row.flops:.2f}",
                _mark(flops, row.flops),
                f"{training_flops(hparams, EXECUTED):.2e}",
                f"({notes.index(note) + 1})" if note else "",
            ]
        )
    lines = [_wrap(f"({i}) {note}.") for i, note in enumerate(notes, start=1)]
    return "\n".join([format_table(header, cells, markdown), "", *lines])


def _mark(ours: float, published: float) -> str:
    return "yes" if reproduced(ours, published) else "no"


def _note(row: Published) -> str:
    if not row.explained_by:
        return row.note
    flops = training_flops(hparams_of(row, **row.explained_by))
    per_update = flops / row.settings["num_train_steps"]
    return f"{row.note}: {per_update:.3g} an update, the paper's {_per_update(row):.3g}"


def _per_update(row: Published) -> float:
    return row.flops / row.settings["num_train_steps"]


def block_ratio(config: EncoderConfig, length: int) -> float:
    """FLOPs of the mixed-attention block over those of self-attention at one length."""
    plain = config.replace(token_mixer="attention", head_ratio=1)
    return token_mixer(config, length).total / token_mixer(plain, length).total


def block_table(markdown: bool = False) -> str:
    """Table 5: the mixing blocks of the base size, per token and per sequence of one layer."""
    mixed = SIZES["convbert-base"]
    plain = mixed.replace(token_mixer="attention", head_ratio=1)
    header = [
        "block",
        "length",
        "per token",
        "per sequence",
        "mixed / self",
        "paper",
        "paper m / s",
    ]
    paper_ratio = TABLE_5["mixed-attention"][0] / TABLE_5["self-attention"][0]
    cells = [
        [
            name,
            str(length),
            f"{token_mixer(config, length).total / 1e6:.2f}M",
            f"{token_mixer(config, length).total * length / 1e9:.2f}G",
            f"{block_ratio(mixed, length):.2f}",
            f"{TABLE_5[name][0]}G",
            f"{paper_ratio:.2f}",
        ]
        for length in (128, 512)
        for name, config in (("self-attention", plain), ("mixed-attention", mixed))
    ]
    length = next(length for length in range(1, 10_000) if block_ratio(mixed, length) < paper_ratio)
    gflops, ms = TABLE_5["self-attention"]
    note = (
        f"Not reproduced: the paper says neither length nor batch. Its ratio of {paper_ratio:.2f}"
        f" needs {length} tokens, more than the {mixed.max_position_embeddings} positions there"
        f" are. Its {gflops}G in {ms} ms are {gflops / ms * 1e3:.0f} GFLOP/s, above the"
        f" {PEAK_GFLOPS:.0f} GFLOP/s that its processor can do, so that the FLOPs and the time"
        " cannot be of the same sample."
    )
    return "\n".join([format_table(header, cells, markdown), "", _wrap(note)])


def _wrap(text: str) -> str:
    return textwrap.fill(text, 100)


def report(markdown: bool = False) -> str:
    """Everything that the command prints."""
    head = "### {}\n" if markdown else "{}\n"
    parts = [
        CONVENTION,
        head.format("ConvBERT supplement, Table 3"),
        comparison_table(TABLE_3, markdown),
        head.format("ALE report, Table IV"),
        comparison_table(TABLE_4_ALE, markdown),
        head.format("ConvBERT supplement, Table 5: one block of the base size, forward pass"),
        block_table(markdown),
    ]
    return "\n\n".join(part.rstrip() for part in parts)


def main() -> None:
    """Prints the report."""
    parser = argparse.ArgumentParser(prog="python -m analysis.flops")
    parser.add_argument("--markdown", action="store_true", help="write Markdown")
    print(report(parser.parse_args().markdown))


if __name__ == "__main__":
    main()
