"""A module on all samples, part by part, with a head that gets all of its outputs at once.

    head(outputs of all samples, all samples),   outputs = those of parts 1, 2, .. put together

A mean over the parts of head(outputs, part) would be another number unless head is a plain mean over samples:
class weights, masks, roots and ranks are not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from mobench.models.stacked import Forward, Head, Scored, Tree, formatted, mapped

PLAIN = (type(None), bool, int, float, str)
"""Outputs beside tensors that can be compared."""

Flat = tuple[list[Any], TreeSpec]


class ApartError(Exception):
    """The outputs of parts are not pieces of the outputs of all samples."""


@dataclass(frozen=True)
class Joints:
    """Rules by which outputs of parts become those of all samples.

    Attributes:
        axes: of each leaf of the outputs the axis of the samples; None: the leaf is the same for all samples,
            as a penalty on parameters is.
        width: numbers of the outputs for each sample.
    """

    axes: tuple[int | None, ...]
    width: int

    @staticmethod
    def of(whole: Tree, parts: Sequence[Tree], samples: int) -> Joints:
        """Finds the joints from the outputs of some samples at once and from those of parts of them.

        Raises:
            ApartError: the outputs of the parts are not those of the whole.
        """
        expected, _ = tree_flatten(whole)
        flat = [tree_flatten(part) for part in parts]
        if len(flat[0][0]) != len(expected):
            raise ApartError
        axes = [_axis(leaf, piece, samples) for leaf, piece in zip(expected, flat[0][0], strict=True)]
        sizes = [leaf.numel() for leaf, axis in zip(expected, axes, strict=True) if axis is not None]
        joints = Joints(tuple(axes), sum(sizes) // samples)
        joined, same = joints.join(flat)
        if not all(map(_agree, tree_flatten(joined)[0], expected)) or not all(map(bool, same)):
            raise ApartError
        return joints

    def join(self, parts: Sequence[Flat]) -> tuple[Tree, list[Tensor]]:
        """Puts flattened outputs together.

        Returns:
            Them, and for each leaf that should be the same in all parts whether it is, () of bool.

        Raises:
            ApartError: they do not fit.
        """
        spec = parts[0][1]
        if any(other != spec for _, other in parts) or spec.num_leaves != len(self.axes):
            raise ApartError
        leaves = []
        same: list[Tensor] = []
        for axis, *pieces in zip(self.axes, *(leaves for leaves, _ in parts), strict=True):
            leaf = _joined(pieces, axis)
            leaves.append(leaf)
            if axis is None and isinstance(leaf, Tensor):
                same += [((piece == leaf) | (piece.isnan() & leaf.isnan())).all() for piece in pieces[1:]]
        return tree_unflatten(leaves, spec), same

    def repeated(self, outputs: Tree, samples: int, size: int) -> Tree:
        """Repeats the outputs of `samples` samples until they are those of `size`."""
        leaves, spec = tree_flatten(outputs)
        times = -(-size // samples)
        for i, axis in enumerate(self.axes):
            if axis is not None:
                each = leaves[i].shape[axis] // samples
                leaves[i] = torch.cat([leaves[i]] * times, axis).narrow(axis, 0, each * size)
        return tree_unflatten(leaves, spec)


def _axis(leaf: Any, piece: Any, samples: int) -> int | None:
    """The axis of the samples; None: there is none."""
    if not isinstance(leaf, Tensor) or not isinstance(piece, Tensor) or leaf.shape == piece.shape:
        return None
    differ = [i for i, (a, b) in enumerate(zip(leaf.shape, piece.shape, strict=False)) if a != b]
    if len(differ) != 1 or leaf.shape[differ[0]] % samples:
        raise ApartError
    return differ[0]


def _joined(pieces: Sequence[Any], axis: int | None) -> Any:
    """One leaf."""
    first = pieces[0]
    if not all(type(piece) is type(first) for piece in pieces):
        raise ApartError
    if not isinstance(first, Tensor):
        if not isinstance(first, PLAIN) or any(piece != first for piece in pieces):
            raise ApartError
        return first
    shapes = [tuple(size for i, size in enumerate(piece.shape) if i != axis) for piece in pieces]
    if any(shape != shapes[0] for shape in shapes):
        raise ApartError
    return first if axis is None else torch.cat(list(pieces), axis)


def _agree(a: Any, b: Any) -> bool:
    """Returns whether two leaves agree: tensors of real numbers in half of their digits."""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and a == b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    same = (a == b) | (a.isnan() & b.isnan())
    if a.is_floating_point() and a.numel():
        size = b.abs().nan_to_num(posinf=0.0).amax()
        same |= (a - b).abs() <= torch.finfo(b.dtype).eps ** 0.5 * size
    return bool(same.all())


class InParts(Scored):
    """A module, computed part by part, and a head of its outputs for all samples.

    The batch that it is called with does not matter: it holds its samples.

    Args:
        parts: the samples, cut; one part: all at once. joints: None if there is one part.
        channels_last: whether pictures go into the module in that memory format.
    """

    def __init__(
        self,
        module: nn.Module,
        forward: Forward,
        head: Head,
        samples: Tree,
        parts: Sequence[Tree],
        joints: Joints | None,
        channels_last: bool = False,
    ) -> None:
        super().__init__(module, forward, head)
        self.samples = samples
        self.parts = parts
        self.joints = joints
        self.channels_last = channels_last

    def forward(self, batch: Tree) -> Tensor:
        """head(outputs, samples), and behind it the number of leaves that wrongly differ between parts.

        If it is not 0, the samples must be computed at once.
        """
        outputs, same = self._outputs()
        values = self.head(outputs, self.samples)
        differ = torch.stack([~each for each in same]).sum().to(values) if same else values.new_zeros(())
        return torch.cat([values, differ.unsqueeze(0)])

    def _outputs(self) -> tuple[Tree, list[Tensor]]:
        if len(self.parts) > 1:
            assert self.joints is not None
            with contextlib.suppress(ApartError):
                return self.joints.join([tree_flatten(self._run(part)) for part in self.parts])
        return self._run(self.samples), []

    def _run(self, part: Tree) -> Tree:
        return self.run(self.module, mapped(lambda t: formatted(t, self.channels_last), part))
