"""Types that several modules share."""

from typing import Any

Real = float | int
"""A number in a YAML file: `1` is as good as `1.0`."""

State = dict[str, Any]
"""What a method, an oracle, an output rule or a job carries from step to step: tensors by name, R first."""
