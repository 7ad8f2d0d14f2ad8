"""Log-mel features of a waveform, and masks of SpecAugment.

m(t, f) = log(1e-6 + sum_w fb(f, w) |STFT(x)(t, w)|^2), each f then shifted and scaled to mean 0 and variance
1 over the clip
"""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# seconds
WINDOW = 0.025
HOP = 0.010


def mel(hertz: Tensor) -> Tensor:
    """Mel scale, 2595 log10(1 + hertz / 700)."""
    return 2595.0 * torch.log10(1.0 + hertz / 700.0)


@lru_cache(maxsize=8)
def filters(mels: int, bins: int, rate: int) -> Float[Tensor, "bins mels"]:
    """Triangles of height 1, evenly spaced on the mel scale from 20 Hz to rate / 2."""
    low, high = mel(torch.tensor([20.0, rate / 2.0], dtype=torch.float64))
    edges = torch.linspace(float(low), float(high), mels + 2, dtype=torch.float64)
    at = mel(torch.linspace(0.0, rate / 2.0, bins, dtype=torch.float64)).unsqueeze(1)
    up = (at - edges[:-2]) / (edges[1:-1] - edges[:-2])
    down = (edges[2:] - at) / (edges[2:] - edges[1:-1])
    with torch.inference_mode(False):
        return torch.minimum(up, down).clamp_min(0.0)


def frames(samples: int, rate: int) -> int:
    """T, the frames of so many samples."""
    return samples // int(HOP * rate) + 1


def log_mel(wave: Float[Tensor, " n"], rate: int, mels: int) -> Float[Tensor, "T mels"]:
    """Features of one clip, scaled by its mean and variance; zeros before and behind it.

    Windows of 25 ms (Hann) every 10 ms, the transform of the next power of two. The project computes this
    itself: torchaudio's releases are bound to one version of torch each.
    """
    size = 1 << (int(WINDOW * rate) - 1).bit_length()
    window = torch.hann_window(int(WINDOW * rate), dtype=torch.float64)
    spectrum = torch.stft(
        wave.double(), size, int(HOP * rate), window.numel(), window, pad_mode="constant", return_complex=True
    )
    power = spectrum.real.square() + spectrum.imag.square()
    out = torch.log(power.T @ filters(mels, size // 2 + 1, rate) + 1e-6)
    spread = out.std(0, correction=0)
    # a constant band (silence) has no scale: it becomes 0, not noise
    return torch.where(spread > 1e-3, (out - out.mean(0)) / spread.clamp_min(1e-3), 0.0).float()


def spec_augment(
    u: Float[Tensor, "*B n 4"], lengths: Int[Tensor, "*B"], T: int, F: int, time: float, frequency: float
) -> Bool[Tensor, "*B T F"]:
    """Returns a mask (True: hidden) of n bands in time and n in frequency, of two uniform numbers u for each.

    A band in time is up to `time` of its clip's length wide, one in frequency up to `frequency` of F.
    Source: Park et al. 2019 (SpecAugment), without time warping. Departure: hidden cells are 0, the clip's
    mean.
    """
    steps = torch.arange(T, device=u.device)
    bands = torch.arange(F, device=u.device)
    n = lengths.unsqueeze(-1).to(u)
    wide = u[..., 0] * time * n
    high = u[..., 2] * frequency * F
    left = u[..., 1] * (n - wide)
    low = u[..., 3] * (F - high)
    in_time = (steps >= left.unsqueeze(-1)) & (steps < (left + wide).unsqueeze(-1))
    in_frequency = (bands >= low.unsqueeze(-1)) & (bands < (low + high).unsqueeze(-1))
    return in_time.any(-2).unsqueeze(-1) | in_frequency.any(-2).unsqueeze(-2)
