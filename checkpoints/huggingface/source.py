"""A folder as transformers' `save_pretrained` writes it: what is in it, and filling networks."""

from __future__ import annotations

import dataclasses
import os
import re

import numpy as np

import storage
from checkpoints.huggingface import names
from checkpoints.huggingface.config import encoder_config
from checkpoints.huggingface.tensors import TensorFiles
from errors import InputError
from model import EncoderConfig
from model.config import CONFIG_FILE, read_fields

GENERATOR_FOLDER = "generator"  # where a discriminator's generator is, unless said otherwise
# ConvBERT has no class for replaced-token detection in transformers, which does not read this file.
DISCRIMINATOR_FILE = "discriminator_predictions.safetensors"

_LAYER = re.compile(r"\bencoder\.layer\.(\d+)\.")


@dataclasses.dataclass
class Source:
    """What a folder says of itself."""

    folder: str
    model_type: str  # "convbert", "electra" or "bert"
    config: EncoderConfig
    files: TensorFiles
    stored: dict[str, str]  # name of today -> name in the file
    notes: list[str]  # what was inferred, and what was left out

    @property
    def prefix(self) -> str:
        """What the names of the encoder's tensors begin with; heads stand beside it."""
        prefix = f"{self.model_type}."
        return prefix if any(name.startswith(prefix) for name in self.stored) else ""

    @property
    def has_masked_lm_head(self) -> bool:
        """Whether there is a head that predicts masked tokens."""
        return self._has(names.MASKED_LM_HEADS[self.model_type])

    @property
    def has_discriminator_head(self) -> bool:
        """Whether there is a head that tells replaced tokens."""
        return self._has(names.DISCRIMINATOR_HEAD)

    def read(self, name: str) -> np.ndarray:
        """A tensor by its name of today, float32; InputError when it is not there."""
        if name not in self.stored:
            raise InputError(f"{self.folder}: the tensor {name} is missing")
        return self.files.read(self.stored[name])

    def fill(self, slots: dict[str, names.Slot]) -> None:
        """Assigns the tensors to variables: every variable is filled, every tensor accounted for.

        Raises:
            InputError: a tensor is missing, of another shape, not finite, or nothing takes it.
        """
        missing = sorted(set(slots) - set(self.stored))
        if missing:
            raise InputError(f"{self.folder}: tensors are missing: {_listed(missing)}")
        for name, slot in slots.items():
            shape = self.files.shapes[self.stored[name]]
            if shape != slot.shape:
                raise InputError(
                    f"{self.folder}: {name} should have shape {slot.shape}, as its {CONFIG_FILE}"
                    f" says. Received: {shape}"
                )
        self._account_for(sorted(set(self.stored) - set(slots)))
        for name, slot in slots.items():
            slot.assign(self.read(name))

    def _account_for(self, unused: list[str]) -> None:
        """Rejects tensors that no variable takes, unless it is known why."""
        left_out: dict[str | None, list[str]] = {}
        for name in unused:
            left_out.setdefault(self._reason(name), []).append(name)
        if unknown := left_out.pop(None, []):
            raise InputError(f"{self.folder}: tensors that no variable takes: {_listed(unknown)}")
        for reason, group in left_out.items():
            self.notes.append(f"{self.folder}: left out: {', '.join(group)} ({reason})")

    def _reason(self, name: str) -> str | None:
        """Why a tensor may be left out; None when it may not."""
        if name in names.COPIES:
            original = names.COPIES[name].format(encoder=self.prefix)
            if not np.array_equal(self.read(name), self.read(original)):
                raise InputError(
                    f"{self.folder}: {name} should be equal to {original}, for the output layer"
                    " shares it here; received other values (`tie_word_embeddings` false?)"
                )
            return f"a copy of {original}"
        inner = name.removeprefix(f"{self.model_type}.")
        return next((why for start, why in names.LEFT_OUT.items() if inner.startswith(start)), None)

    def _has(self, scope: str) -> bool:
        return any(name.startswith(f"{scope}.") for name in self.stored)


def open_source(folder: str, config: str | None = None) -> Source:
    """Reads the configuration of a folder, or `config` instead, and the names of its tensors.

    Raises:
        InputError: a file is missing or unreadable, or describes a network that is not here.
    """
    if not storage.isdir(folder):
        raise InputError(f"{folder}: there is no such folder")
    path = config or os.path.join(folder, CONFIG_FILE)
    fields = read_fields(path)
    described, notes = encoder_config(fields, path)
    files = TensorFiles(folder, extra=(DISCRIMINATOR_FILE,))
    numbers = [int(match[1]) for match in map(_LAYER.search, files.shapes) if match]
    layers = max(numbers, default=0) + 1
    if layers != described.num_hidden_layers:  # before any is built
        raise InputError(
            f"{path}: `num_hidden_layers` should be {layers}, as the tensors of {folder} are named."
            f" Received: {described.num_hidden_layers}"
        )
    half = files.half_precision()
    if half:
        notes.append(f"{folder}: {len(half)} tensors of half precision are read as float32")
    stored: dict[str, str] = {}
    for name in files.shapes:
        current = names.current_name(name)
        if current in stored:
            raise InputError(f"{folder}: {name} and {stored[current]} are the same tensor")
        stored[current] = name
    return Source(folder, fields["model_type"], described, files, stored, notes)


def _listed(listed: list[str]) -> str:
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return ", ".join(listed[:3]) + more
