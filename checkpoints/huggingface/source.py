"""A folder as transformers' `save_pretrained` writes it: what is in it, and filling networks."""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np

import storage
from checkpoints.huggingface import names
from checkpoints.huggingface.config import TIED, encoder_config
from checkpoints.huggingface.tensors import TensorFiles
from checkpoints.slots import Slot, fill
from errors import InputError
from model import EncoderConfig
from model.config import CONFIG_FILE, read_fields

GENERATOR_FOLDER = "generator"  # where a discriminator's generator is, unless said otherwise
# ConvBERT has no class for replaced-token detection in transformers, which does not read this file.
DISCRIMINATOR_FILE = "discriminator_predictions.safetensors"


@dataclasses.dataclass
class Source:
    """What a folder says of itself."""

    folder: str
    model_type: str  # "convbert", "electra" or "bert"
    config: EncoderConfig
    files: TensorFiles
    stored: dict[str, str]  # name of today -> name in the file
    said_tied: bool  # what `config.json` says of the output layer and the word embeddings
    notes: list[str]  # what was inferred, and what was left out

    @property
    def prefix(self) -> str:
        """What the names of the encoder's tensors begin with; heads stand beside it."""
        prefix = f"{self.model_type}."
        return prefix if any(name.startswith(prefix) for name in self.stored) else ""

    @property
    def has_masked_lm_head(self) -> bool:
        """Returns True if a head predicts masked tokens and shares the embeddings."""
        return self._has(names.MASKED_LM_HEADS[self.model_type]) and self.is_tied

    @functools.cached_property
    def is_tied(self) -> bool:
        """Returns True if the output layer is the word embeddings, as far as files show it."""
        copies = {copy: self._original(copy) for copy in names.COPIES if copy in self.stored}
        same = [
            original in self.stored and np.array_equal(self.read(copy), self.read(original))
            for copy, original in copies.items()
        ]
        return all(same) if any(copy.endswith("weight") for copy in copies) else self.said_tied

    @property
    def has_discriminator_head(self) -> bool:
        """Whether there is a head that tells replaced tokens."""
        return self._has(names.DISCRIMINATOR_HEAD)

    def read(self, name: str) -> np.ndarray:
        """A tensor by its name of today, float32; InputError when it is not there."""
        if name not in self.stored:
            raise InputError(f"{self.folder}: the tensor {name} is missing")
        return self.files.read(self.stored[name])

    def fill(self, slots: dict[str, Slot]) -> None:
        """Assigns the tensors to variables; see `checkpoints.slots.fill`."""
        shapes = {name: self.files.shapes[stored] for name, stored in self.stored.items()}
        self.notes += fill(slots, shapes, self.read, self._reason, self.folder)

    def _reason(self, name: str) -> str | None:
        """Why a tensor may be left out; None when it may not."""
        if name in names.COPIES and self.is_tied:
            return f"a copy of {self._original(name)}"
        if name.startswith(names.OUTPUT_SCOPES):
            return None if self.is_tied else f"a masked-LM head with {names.UNTIED}"
        inner = name.removeprefix(f"{self.model_type}.")
        for start, why in names.LEFT_OUT.items():
            if inner.startswith(start):
                return why
        beside = self.prefix and not name.startswith((self.prefix, names.DISCRIMINATOR_HEAD))
        return "a part beside the encoder that is not known here" if beside else None

    def _original(self, copy: str) -> str:
        return names.COPIES[copy].format(encoder=self.prefix)

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
    notes += [f"{folder}: {note}" for note in files.notes()]
    stored: dict[str, str] = {}
    for name in files.shapes:
        current = names.current_name(name)
        if current in stored:
            raise InputError(f"{folder}: {name} and {stored[current]} are the same tensor")
        stored[current] = name
    tied = fields.get(TIED, True) is not False
    return Source(folder, fields["model_type"], described, files, stored, tied, notes)
