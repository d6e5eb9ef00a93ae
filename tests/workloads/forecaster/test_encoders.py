import pytest
import torch

from brim.workloads.forecaster.encoders import SegmentEncoder, StepEncoder

SAMPLES, LOOKBACK, CHANNELS, HIDDEN, SEGMENT, KNOWN, STATIC = 5, 14, 3, 8, 4, 2, 6
KINDS = {"steps": StepEncoder, "segments": SegmentEncoder}


def made(kind, layers, known=KNOWN, static=STATIC):
    torch.manual_seed(0)
    return KINDS[kind](LOOKBACK, CHANNELS, HIDDEN, layers, SEGMENT, 0.0, known, static)


def batch():
    generator = torch.Generator().manual_seed(1)
    shapes = (SAMPLES, LOOKBACK, CHANNELS), (SAMPLES, LOOKBACK, KNOWN), (SAMPLES, STATIC)
    return [torch.randn(shape, generator=generator) for shape in shapes]


@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_state_has_the_width_that_the_head_is_made_for(kind, layers):
    encoder = made(kind, layers)
    state = encoder(*batch())
    assert state.shape == ((SAMPLES, CHANNELS) if kind == "segments" else (SAMPLES,)) + (encoder.width,)


@pytest.mark.parametrize("layers", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_it_depends_on_all_that_is_known_and_works_without(kind, layers):
    encoder, (window, known, static) = made(kind, layers), batch()
    state = encoder(window, known, static)
    assert not torch.equal(state, encoder(window, known + 1, static))
    assert not torch.equal(state, encoder(window, known, static + 1))
    alone = made(kind, layers, known=0, static=0)
    assert alone(window, None, None).shape == state.shape


def test_segments_leave_the_oldest_steps_out():
    encoder, (window, known, static) = made("segments", 1), batch()
    left_out = LOOKBACK % SEGMENT
    older, newer = window.clone(), window.clone()
    older[:, :left_out] += 1
    newer[:, left_out] += 1
    state = encoder(window, known, static)
    assert torch.equal(state, encoder(older, known, static)) and not torch.equal(state, encoder(newer, known, static))


def test_segments_of_a_channel_know_nothing_of_the_other_channels():
    encoder, (window, known, static) = made("segments", 1), batch()
    changed = window.clone()
    changed[:, :, 0] += 1
    before, after = encoder(window, known, static), encoder(changed, known, static)
    assert torch.equal(before[:, 1:], after[:, 1:]) and not torch.equal(before[:, 0], after[:, 0])
