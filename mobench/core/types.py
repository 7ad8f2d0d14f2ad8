"""Types that fields of parts share."""

Real = float | int
"""A number in a YAML file: `1` is as good as `1.0`."""
