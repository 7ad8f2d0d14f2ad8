"""`python -m mobench.doctor`: what a bug report needs, and what is missing."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys

import torch

from mobench import provenance
from mobench.config import choices, conf_dir
from mobench.loggers import has_key
from mobench.store import outputs_root


def main() -> int:
    """Print versions, devices, folders and optional parts."""
    for name, value in provenance.versions().items():
        print(f"{name:14s} {value}")
    code = provenance.code()
    print(f"{'commit':14s} {code['git_sha'] or 'no checkout'}{' (modified)' if code['git_dirty'] else ''}")
    print(f"{'cpu':14s} {provenance.device_name(torch.device('cpu'))}, {os.cpu_count()} cores")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"{'gpu':14s} {', '.join(gpus) or 'none'}")
    print(f"{'conf':14s} {conf_dir()}, {len(choices('experiment'))} artifacts")
    root = outputs_root()
    writable = os.access(root if root.exists() else root.absolute().parent, os.W_OK)
    free = shutil.disk_usage(root if root.exists() else root.absolute().parent).free / 2**30
    print(f"{'outputs':14s} {root.absolute()} ({'writable' if writable else 'NOT writable'}, {free:.0f} GiB free)")
    print(f"{'data':14s} {os.environ.get('MOBENCH_DATA', 'MOBENCH_DATA is not set: embedded data only')}")
    print(f"{'W&B key':14s} {'configured' if has_key() else 'none (logger=auto is off)'}")
    for package, purpose in (("hydra_plugins", "joblib and submitit launchers"), ("learn2learn", "few-shot episodes")):
        found = importlib.util.find_spec(package) is not None
        print(f"{package:14s} {'found' if found else 'not installed'} ({purpose})")
    return 0 if writable else 1


if __name__ == "__main__":
    sys.exit(main())
