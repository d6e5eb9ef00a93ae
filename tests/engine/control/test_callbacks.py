import torch

from brim.engine.control.callbacks import Callback, Callbacks


def test_only_what_is_overridden_is_called():
    class OnEpoch(Callback):
        def __init__(self):
            self.epochs = []

        def on_epoch_end(self, trainer, epoch):
            self.epochs.append(epoch)

    callback = OnEpoch()
    callbacks = Callbacks((callback,))
    assert callbacks.on_step == []
    callbacks.call("on_epoch_end", None, 3)
    callbacks.call("on_fit_end", None)
    assert callback.epochs == [3]


def test_any_object_with_the_right_methods_is_a_callback():
    class Duck:
        def __init__(self):
            self.losses = []

        def on_step_end(self, trainer, step, loss):
            self.losses.append(loss)

    callbacks = Callbacks((duck := Duck(),))
    for on_step_end in callbacks.on_step:
        on_step_end(None, 1, torch.ones(()))
    assert len(duck.losses) == 1
