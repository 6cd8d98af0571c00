"""Commands of benchmarks as modules, several in one process."""

from __future__ import annotations

import functools
import importlib
import sys

from absl import flags


def import_command(monkeypatch, name: str):
    """The module benchmarks.NAME, imported anew with flags of its own, and these flags."""
    own = flags.FlagValues()  # commands share names of flags
    for define in [word for word in dir(flags) if word.startswith("DEFINE_")]:
        known = functools.partial(getattr(flags, define), flag_values=own)
        monkeypatch.setattr(flags, define, known)
    monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    return importlib.import_module(f"benchmarks.{name}"), own
