"""Commands as modules, several in one process."""

from __future__ import annotations

import functools
import importlib
import sys

from absl import flags


def import_command(monkeypatch, name: str):
    """A module, imported anew with flags of its own, and these flags."""
    own = flags.FlagValues()  # commands share names of flags
    for define in [word for word in dir(flags) if word.startswith("DEFINE_")]:
        known = functools.partial(getattr(flags, define), flag_values=own)
        monkeypatch.setattr(flags, define, known)
    monkeypatch.setattr(flags, "FLAGS", own)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name), own
