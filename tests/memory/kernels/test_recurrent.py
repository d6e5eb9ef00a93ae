"""Recurrent layers against what an H200 allocated (torch 2.11, cuDNN 9.19)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from brim.memory.kernels.recurrent import (
    Recurrent,
    backward_steps,
    backward_workspace_bytes,
    forward_steps,
    forward_workspace_bytes,
    reserve_bytes,
    weight_bytes,
)
from brim.memory.kernels.scope import Scope

MIB = 1 << 20
Written = Callable[[Scope], list[str]]

# layer, reserve, workspace of the forward, workspace of the backward
MEASURED = [
    (Recurrent("LSTM", 16, 256, 90, 128, layers=3, dropout=0.1), 201277696, 105923840, 105923840),
    (Recurrent("LSTM", 8, 64, 30, 256, layers=2), 21627136, 59566336, 59566336),
    (Recurrent("LSTM", 32, 128, 60, 64, layers=2, bidirectional=True), 43254016, 96436992, 96436992),
    (Recurrent("LSTM", 32, 256, 60, 64, layers=2, projection=64), 53084416, 40076032, 40076032),
    (Recurrent("GRU", 24, 192, 48, 128, layers=2, dropout=0.2), 61489408, 110173440, 43326720),
    (Recurrent("RNN", 24, 128, 48, 128, layers=2), 9437440, 62993664, 62993664),
    (Recurrent("LSTM", 256, 100, 48, 32, layers=3, element_size=2, half=True), 5222656, 33276032, 33276032),
    (Recurrent("RNN", 32, 32, 365, 16, layers=2, bidirectional=True), 4485376, 50846080, 50846080),
    (Recurrent("GRU", 24, 300, 12, 4096, bidirectional=True), 707789056, 800463232, 800463232),
    (Recurrent("LSTM", 8, 128, 1, 100, layers=2, dropout=0.1), 565056, 19686688, 19686688),
    (Recurrent("LSTM", 32, 16, 90, 64, layers=3, element_size=2, autocast=True), 3133696, 29469440, 29469440),
    (Recurrent("GRU", 512, 64, 30, 512, layers=2, element_size=2, autocast=True), 25559296, 100413696, 100413696),
    (Recurrent("GRU", 64, 384, 24, 8, layers=2, bidirectional=True), 7667968, 52281664, 52281664),
    (Recurrent("GRU", 32, 192, 128, 64, layers=2, element_size=2, half=True), 40894720, 78590720, 30831360),
    (Recurrent("RNN", 32, 192, 60, 256, layers=4), 82575616, 208414976, 208414976),
    (Recurrent("GRU", 512, 1024, 30, 1), 737536, 27898144, 27898144),
    (Recurrent("LSTM", 128, 32, 60, 1024, projection=8), 49152256, 123548928, 123548928),
    (Recurrent("RNN", 4, 32, 7, 1024, layers=2, element_size=2, flat_weights=False), 1376512, 19397120, 19397120),
    (Recurrent("LSTM", 1, 768, 60, 16, element_size=2, flat_weights=False), 7373056, 20734208, 20734208),
    (Recurrent("GRU", 512, 768, 128, 512, element_size=2, autocast=True), 603980032, 555094272, 555094272),
    (Recurrent("LSTM", 1, 64, 128, 16, layers=4, bidirectional=True), 24117504, 84453760, 84453760),
    (Recurrent("RNN", 4, 16, 48, 32, element_size=2, half=True, autocast=True), 49408, 9059456, 9059456),
    (Recurrent("RNN", 512, 1024, 90, 16, element_size=2, half=True, autocast=True), 2949376, 53019008, 53019008),
]
# layer, workspace, largest error
IRREGULAR = [
    (Recurrent("RNN", 24, 768, 60, 8, layers=2), 29870400, 0.031),
    (
        Recurrent("GRU", 32, 300, 365, 128, layers=2, dropout=0.1, element_size=2, half=True, autocast=True),
        137260576,
        0.041,
    ),
    (Recurrent("LSTM", 4, 16, 365, 128, projection=4), 21335552, 0.044),
]


def named(layer: Recurrent) -> str:
    return f"{layer.mode} {layer.input_size}-{layer.hidden_size} T{layer.time} B{layer.batch}"


@pytest.mark.parametrize(("layer", "reserve", "forward", "backward"), MEASURED, ids=[named(m[0]) for m in MEASURED])
def test_sizes_are_those_measured(layer: Recurrent, reserve: int, forward: int, backward: int) -> None:
    assert reserve_bytes(layer) == pytest.approx(reserve, abs=128)
    assert forward_workspace_bytes(layer) == pytest.approx(forward, rel=3e-4)
    assert backward_workspace_bytes(layer) == pytest.approx(backward, rel=3e-4)


@pytest.mark.parametrize(("layer", "measured", "error"), IRREGULAR, ids=[named(i[0]) for i in IRREGULAR])
def test_irregular_layers_stay_near(layer: Recurrent, measured: int, error: float) -> None:
    assert forward_workspace_bytes(layer) == pytest.approx(measured, rel=error)


@pytest.mark.parametrize(
    ("layer", "elements"),
    [
        (Recurrent("LSTM", 16, 256, 90, 128, layers=3), 1333248),
        (Recurrent("LSTM", 32, 128, 60, 64, layers=2, bidirectional=True), 561152),
        (Recurrent("LSTM", 32, 256, 60, 64, layers=2, projection=64), 266240),
        (Recurrent("GRU", 24, 192, 48, 128, layers=2), 347904),
        (Recurrent("RNN", 24, 128, 48, 128, layers=2), 52736),
    ],
    ids=lambda value: named(value) if isinstance(value, Recurrent) else str(value),
)
def test_weights_are_flattened_with_two_biases(layer: Recurrent, elements: int) -> None:
    assert weight_bytes(layer) == 4 * elements
    assert weight_bytes(replace(layer, element_size=2)) == 2 * elements


LSTM_SMALL = Recurrent("LSTM", 8, 64, 30, 256, layers=2, batch_first=True)


def test_forward_in_order(written: Written) -> None:
    scope = Scope()
    forward_steps(LSTM_SMALL, scope)
    assert " ".join(written(scope)) == "t245760 o0 o1 o2 t59566336 o3 f59566336 f245760"


def test_backward_in_order(written: Written) -> None:
    scope = Scope()
    backward_steps(LSTM_SMALL, scope)
    assert " ".join(written(scope)) == (
        "t131072 t131072 t245760 t1966080 o0 o1 o2 t59566336 f59566336 f1966080 f245760 "
        "t245760 o3 t59566336 f59566336 f245760 f131072 f131072"
    )


def test_backward_with_gradients_in_place_takes_less(written: Written) -> None:
    scope = Scope()
    backward_steps(replace(LSTM_SMALL, batch_first=False), scope, states_unused=False)
    assert written(scope) == ["o0", "o1", "o2", "t59566336", "f59566336", "o3", "t59566336", "f59566336"]


def test_autocast_casts_weights_state_and_input_first(written: Written) -> None:
    scope = Scope()
    forward_steps(replace(LSTM_SMALL, element_size=2, autocast=True, batch_first=False), scope)
    assert written(scope)[:5] == ["o4", "o6", "o5", "o7", "o0"]


def test_scattered_weights_are_flattened_just_before_the_workspace(written: Written) -> None:
    scope = Scope()
    forward_steps(Recurrent("GRU", 8, 64, 30, 256, element_size=2, flat_weights=False), scope)
    assert [word[:2] for word in written(scope)][:3] == ["o0", "o1", "o4"]


def test_no_copy_where_batch_first_is_time_first(written: Written) -> None:
    for layer in (replace(LSTM_SMALL, time=1), replace(LSTM_SMALL, batch=1)):
        scope = Scope()
        forward_steps(layer, scope)
        assert written(scope)[0] == "o0"


def test_every_temporary_is_given_back() -> None:
    for layer, *_ in MEASURED:
        for steps in (forward_steps, backward_steps):
            scope = Scope()
            steps(replace(layer, batch_first=True), scope)
            before = len(scope.steps)
            scope.close()
            assert len(scope.steps) == before


@pytest.mark.parametrize("mode", ["LSTM", "GRU", "RNN"])
def test_more_of_anything_needs_no_less(mode: str) -> None:
    layer = Recurrent(mode, 32, 512, 40, 16, layers=2)  # type: ignore[arg-type]
    more = [replace(layer, batch=32), replace(layer, time=80), replace(layer, layers=3)]
    more += [replace(layer, input_size=1024), replace(layer, bidirectional=True), replace(layer, dropout=0.1)]
    for larger in more:
        assert reserve_bytes(larger) >= reserve_bytes(layer)
        assert forward_workspace_bytes(larger) >= forward_workspace_bytes(layer)


def test_inference_keeps_no_reserve(written: Written) -> None:
    layer = replace(LSTM_SMALL, training=False)
    scope = Scope()
    forward_steps(layer, scope)
    assert reserve_bytes(layer) == 0
    assert "o3" not in written(scope)


def test_every_layer_and_direction_has_its_own_products() -> None:
    layer = Recurrent("RNN", 1, 1, 1, 1, layers=3, bidirectional=True)
    assert 48 * MIB < forward_workspace_bytes(layer) < 49 * MIB
