"""One of several processes: the runs whose configurations a folder holds, in a process group that is made once."""

import sys
from datetime import timedelta
from pathlib import Path

import torch

from spectralgrad_lab import train

from .helpers import trusted

if __name__ == "__main__":
    torch.distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    for file in sorted(Path(sys.argv[1]).glob("*.toml")):
        result = train(trusted(file), file.with_suffix(""))
        print(file.stem, result.status)
    torch.distributed.destroy_process_group()
