"""A loss in two passes is made of two functions, and is a loss function like any other."""

import copy
import pickle

import pytest
import torch
from torch import nn

import brim
from brim.engine.calling.loss_form import LossForm, form_of
from brim.engine.components.loss import loss_of
from brim.engine.components.two_pass import probed, surrogate_loss
from brim.engine.oom.snapshot import named_modules_of
from brim.errors import ConfigError

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))


def encode(model, batch):
    return model(batch), batch


def distance(encoded, batch):
    return (encoded - batch).square().mean()


def of_names(encoded, model):
    return encoded.mean() * model.weight.sum()


def test_what_stands_in_for_a_micro_batch_has_its_gradients_and_the_loss_of_the_whole_batch():
    seen, model = [], nn.Linear(3, 2)

    def spread(encoded, names, model):
        seen.append((encoded.shape, names))
        return brim.Loss((encoded + model.bias.detach()).square().sum(), len(encoded))

    two_pass = brim.TwoPass(lambda model, batch: (model(batch), "a name"), spread)
    surrogate_loss(two_pass, model, torch.ones(4, 3), length=10).backward()
    assert seen == [((10, 2), "a name")]
    # The loss is that of ten rows of zeros: the gradient of each is 2 * bias / 10, and four of them are computed here.
    torch.testing.assert_close(model.bias.grad, 4 * 2 * model.bias.detach() / 10)


def test_native_code_has_no_signature_and_is_taken_as_it_is():
    model = nn.Linear(3, 1)
    native = brim.TwoPass(lambda model, batch: (model(batch),), torch.mean)
    assert torch.equal(native(model, X), model(X).mean())


def test_it_is_the_loss_of_what_is_encoded():
    model = nn.Linear(3, 3)
    assert torch.equal(brim.TwoPass(encode, distance)(model, X), distance(model(X), X))
    assert torch.equal(brim.TwoPass(encode, nn.MSELoss())(model, X), nn.MSELoss()(model(X), X))
    named = brim.TwoPass(lambda model, batch: {"encoded": model(batch)}, of_names)
    assert torch.equal(loss_of(model, named)(X), of_names(model(X), model))


def test_it_is_known_for_a_function_of_model_and_batch_and_what_it_holds_is_found():
    criterion = nn.BCELoss()
    loss_fn = brim.TwoPass(encode, criterion)
    assert form_of(loss_fn) is LossForm.OF_MODEL
    assert criterion in named_modules_of([nn.Linear(1, 1)], loss_fn).values()
    assert copy.deepcopy(loss_fn) is loss_fn
    again = pickle.loads(pickle.dumps(brim.TwoPass(encode, distance)))
    assert isinstance(again, brim.TwoPass) and (again.encode, again.loss) == (encode, distance)


@pytest.mark.parametrize("given", [(encode, None), (nn.Linear, distance), (lambda model: model, distance)])
def test_what_cannot_be_called_so_is_refused(given):
    with pytest.raises(ConfigError, match=r"brim.TwoPass"):
        brim.TwoPass(*given)
    with pytest.raises(ConfigError, match="it takes encode, loss"):
        brim.TwoPass(encode)


def test_a_probe_has_a_gradient_where_rows_are_normalised():
    model = nn.Linear(3, 3)

    def normalised(model, batch):
        return nn.functional.normalize(model(batch), dim=1)

    probed(brim.TwoPass(normalised, distance), model, X).total.backward()
    assert model.weight.grad.norm() > 1e-3
    with pytest.raises(ConfigError, match="no tensor of real numbers"):
        probed(brim.TwoPass(lambda model, batch: batch.argmax(1), distance), model, X)


@pytest.mark.parametrize("given", [1.0, torch.tensor(1.0)])
def test_only_rows_can_be_gathered(given):
    assert brim.gather(X) is X
    with pytest.raises(ConfigError, match=r"brim.gather\(tensor\) joins the rows"):
        brim.gather(given)
