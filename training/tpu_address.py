"""Which TPU the flags name. Needs no TensorFlow."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from typing import Protocol

from errors import InputError
from training.strategies import parse_strategy

LOCAL = "local"
# Where a TPU is named without --tpu: Kubernetes Engine, then Cloud's machines. TensorFlow's order.
ENVIRONMENT = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
FLAG_NAMES = ("tpu", "tpu_zone", "gcp_project")
_ADDRESS = re.compile(r"grpc://([^\s/:,]+):(\d{1,5})")
_NAME = re.compile("[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclasses.dataclass(frozen=True)
class TpuAddress:
    """Where a TPU is.

    Attributes:
        name: "local", the name of a Cloud TPU, or "grpc://HOST:PORT" for every host of it, with
            commas in between.
        zone, project: of a Cloud TPU; None asks Cloud's metadata server.
    """

    name: str = LOCAL
    zone: str | None = None
    project: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the TPU belongs to this machine."""
        return self.name == LOCAL

    @property
    def hosts(self) -> list[tuple[str, int]]:
        """Host names and ports that the address itself says; none for other names."""
        return [(host, int(port)) for host, port in _ADDRESS.findall(self.name)]


class Devices(Protocol):
    """The run settings that say where a command runs."""

    strategy: str
    tpu: str | None
    tpu_zone: str | None
    gcp_project: str | None


def tpu_address(run: Devices, environment: Mapping[str, str] = os.environ) -> TpuAddress | None:
    """The TPU that a command runs on, None for other devices; checks the names of both.

    Without --tpu it is the one that the environment names, or the machine's own.

    Raises:
        InputError: a strategy that there is not, a flag that it makes no use of, or a name that
            cannot be a TPU's.
    """
    tpu, zone, project = run.tpu, run.tpu_zone, run.gcp_project
    kind, _ = parse_strategy(run.strategy)
    if kind != "tpu":
        for flag, value in zip(FLAG_NAMES, (tpu, zone, project)):
            if value is not None:
                raise InputError(
                    f"--{flag} is for --strategy tpu. Received: --strategy {run.strategy}"
                )
        return None
    named = (variable for variable in ENVIRONMENT if environment.get(variable))
    variable = next(named, None) if tpu is None else None
    name = (environment[variable] if variable else LOCAL) if tpu is None else tpu
    address, where = TpuAddress(name, zone, project), variable or "--tpu"
    in_cloud = not (address.is_local or "://" in name)
    right = all(_ADDRESS.fullmatch(part) for part in name.split(",")) or _NAME.fullmatch(name)
    if not right or any(not 0 < port < 2**16 for _, port in address.hosts):
        raise InputError(
            f"{where} should be local, the name of a Cloud TPU or grpc://HOST:PORT."
            f" Received: {name!r}"
        )
    for flag, value in (("tpu_zone", zone), ("gcp_project", project)):
        if value is not None and not in_cloud:
            raise InputError(
                f"--{flag} is for a TPU that --tpu names as Cloud does. Received: {where} {name}"
            )
    return address


def check_folders(address: TpuAddress | None, folders: Mapping[str, str]) -> None:
    """Rejects folders of this machine where the TPU's own hosts read and write.

    Args:
        address: of the TPU, if any.
        folders: flag -> folder.

    Raises:
        InputError: a folder that the hosts of a TPU elsewhere do not see.
    """
    if address is None or address.is_local:
        return
    for flag, folder in folders.items():
        if not folder.startswith("gs://"):
            raise InputError(
                f"--{flag} should be a gs:// folder, as the TPU {address.name} is another machine,"
                f" which reads and writes it itself. Received: {folder}"
            )
