import pytest
import torch

from brim.workloads.classifier.spectrogram import LogMel, mel_filters


def test_a_tone_lies_in_the_band_of_its_pitch():
    times = torch.arange(8000) / 8000
    spectra = LogMel(8000, 32)(torch.stack([torch.sin(6.2832 * pitch * times) for pitch in (300.0, 2500.0)]))
    low, high = spectra[:, 0].mean(2).argmax(1).tolist()
    corners = mel_filters(8000, 200, 32).argmax(1) * 40  # the frequency where each band is highest
    assert corners[low] == pytest.approx(300, abs=80)
    assert corners[high] == pytest.approx(2500, abs=160)
    assert torch.isfinite(LogMel(8000, 32)(torch.zeros(1, 100))).all()  # silence, shorter than a window
