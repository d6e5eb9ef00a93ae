"""Sound as a picture: how much of each pitch there is, over time."""

import math

import torch
from torch import Tensor, nn

WINDOW_S, HOP_S = 0.025, 0.010  # the usual ones for speech
QUIETEST = 1e-6


class LogMel(nn.Module):
    """A log-mel spectrogram, 1 x bands x frames, of sounds with ``rate`` samples a second.

    >>> LogMel(16_000, 40)(torch.zeros(2, 16_000)).shape
    torch.Size([2, 1, 40, 101])
    """

    def __init__(self, rate: int, bands: int) -> None:
        super().__init__()
        self.window, self.hop = max(16, round(WINDOW_S * rate)), max(1, round(HOP_S * rate))
        self.register_buffer("shape_of_window", torch.hann_window(self.window), persistent=False)
        self.register_buffer("filters", mel_filters(rate, self.window, bands), persistent=False)

    def forward(self, sounds: Tensor) -> Tensor:
        with torch.autocast(sounds.device.type, enabled=False):  # half precision has no room for the power of a sound
            spectrum = torch.stft(
                sounds.float(),
                self.window,
                self.hop,
                window=self.shape_of_window,  # type: ignore[arg-type]
                return_complex=True,
                pad_mode="constant",
            )
            power = spectrum.real.square() + spectrum.imag.square()
            bands = torch.matmul(self.filters, power)  # type: ignore[arg-type]
            loudness = (bands + QUIETEST).log()
            mean = loudness.mean((1, 2), keepdim=True)
            spread = loudness.sub(mean).square().mean((1, 2), keepdim=True).add(1e-5).sqrt()
            return ((loudness - mean) / spread).unsqueeze(1)


def mel_filters(rate: int, window: int, bands: int) -> Tensor:
    """Overlapping triangles, equally wide by pitch: bands x frequencies of a Fourier transform."""
    frequencies = torch.linspace(0, rate / 2, window // 2 + 1, dtype=torch.float64)
    mel = torch.linspace(0.0, 2595 * math.log10(1 + rate / 2 / 700), bands + 2, dtype=torch.float64)
    corners = 700 * (10 ** (mel / 2595) - 1)
    low, middle, high = (corners[start : start + bands].unsqueeze(1) for start in range(3))
    rising, falling = (frequencies - low) / (middle - low), (high - frequencies) / (high - middle)
    return torch.minimum(rising, falling).clamp(min=0).float()
