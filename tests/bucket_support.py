"""An object store for tests: bucket://NAME/ is a folder, seen through bucket_plugin.cc."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sysconfig

import pytest

from common import storage

SOURCE = pathlib.Path(__file__).with_name("bucket_plugin.cc")


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """Compiles the plug-in, which takes three seconds; skips the test without a compiler."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    library = folder / "bucket.so"
    includes = pathlib.Path(sysconfig.get_path("purelib"), "tensorflow", "include")
    options = ["-std=c++17", "-shared", "-fPIC", "-O1", f"-I{includes}"]
    subprocess.run(["g++", *options, SOURCE, "-o", library], check=True)
    return library


def environment(library: pathlib.Path, root: pathlib.Path) -> dict[str, str]:
    """Variables by which a command finds the store, whose buckets are the folders in `root`."""
    return {storage.FILE_SYSTEMS: str(library), "BUCKET_ROOT": str(root)}
