"""What a loss or a model keeps in Python goes on with a resumed run; what cannot is told, and nothing else is."""

import itertools
import random
from argparse import Namespace
from collections import Counter, defaultdict, deque
from enum import Enum

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers.callbacks import StopAt
from helpers.small_training import X, Y, net, sgd
from torch import nn

import brim
from brim.engine.run_state.user_state import UserState
from brim.engine.state.host_copy import host_copy

pytestmark = pytest.mark.usefixtures("own_folder")

CPU = torch.device("cpu")
STEPS = 0  # a global that a loss counts in


def train(make, stop_at=None, resume=None, **settings):
    """The weights after a run, or a part of it, of what ``make`` builds: a script that is started anew."""
    model, loss_fn = make()
    trainer = brim.Trainer(
        model, brim.Loader((X, Y), 8), loss_fn=loss_fn, optimizer=sgd, epochs=2, device="cpu", threads=1,
        run_dir="run" if stop_at or resume else "whole", callbacks=[StopAt(stop_at)], **settings,
    )  # fmt: skip
    trainer.fit(resume=resume)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def assert_goes_on(make, **settings):
    """Stopped in mid-epoch and resumed it is the run that was not."""
    whole = train(make, **settings)
    train(make, stop_at=7, **settings)
    assert torch.equal(train(make, resume="run", **settings), whole)


class Annealed:
    """A loss with a counter."""

    def __init__(self):
        self.calls = 0

    def __call__(self, model, batch):
        self.calls += 1
        return F.mse_loss(model(batch[0]), batch[1]) / (1 + self.calls)


class PastLosses(nn.Module):
    """A criterion that divides by the mean of the last losses."""

    def __init__(self):
        super().__init__()
        self.past = deque(maxlen=4)

    def forward(self, input, target):
        loss = F.mse_loss(input, target)
        self.past.append(loss.item())
        return loss / (sum(self.past) / len(self.past))


class NotInStateDict(nn.Module):
    """A model with a moving mean in a buffer that its ``state_dict()`` leaves out."""

    def __init__(self):
        super().__init__()
        self.inner = net()
        self.register_buffer("mean", torch.zeros(4), persistent=False)

    def forward(self, x):
        self.mean.lerp_(x.mean(0), 0.2)
        return self.inner(x - self.mean)


class Late(nn.Module):
    """A model with an attribute that its first batch makes, as a tensor, and a length beside it."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, x):
        mean = x.detach().mean(0)
        self.mean = mean if not hasattr(self, "mean") else self.mean.lerp(mean, 0.2)
        return self.inner(x - self.mean)


class Noisy:
    """Draws from generators of its own, one of each kind."""

    def __init__(self):
        self.python, self.numpy, self.torch = random.Random(1), np.random.default_rng(2), torch.Generator()
        self.torch.manual_seed(3)

    def __call__(self, model, batch):
        noise = self.python.random() + self.numpy.random() + torch.rand((), generator=self.torch)
        return F.mse_loss(model(batch[0]), batch[1]) * noise


class Adversary:
    """A loss that trains something by itself, with an optimizer of its own."""

    def __init__(self):
        torch.manual_seed(5)
        self.judge = nn.Linear(1, 1)
        self.optimizer = torch.optim.Adam(self.judge.parameters(), lr=0.05)

    def __call__(self, model, batch):
        output = model(batch[0])
        self.optimizer.zero_grad()
        (self.judge(output.detach()).mean() - self.judge(batch[1]).mean()).backward()
        self.optimizer.step()
        return F.mse_loss(output, batch[1]) - 0.1 * self.judge(output).mean()


class Phase(Enum):
    WARM_UP = 1
    FULL = 2


class InParts:
    """Keeps its numbers in objects of its own, a namespace, slots and an enumeration."""

    def __init__(self):
        self.held = Namespace(weight=1.0)
        self.terms = [Term(), Term()]
        self.phase = Phase.WARM_UP
        self.seen = Counter()
        self.numbers = itertools.count(3)
        self.array = np.zeros(2)

    def __call__(self, model, batch):
        self.held.weight *= 0.9
        self.array += next(self.numbers)
        self.seen["calls"] += 1
        self.phase = Phase.FULL if self.seen["calls"] > 4 else Phase.WARM_UP
        loss = F.mse_loss(model(batch[0]), batch[1])
        return loss * (self.held.weight + self.phase.value + sum(term() for term in self.terms)) / float(self.array[0])


class Term:
    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return self.calls


def closure():
    calls = 0

    def loss(model, batch):
        nonlocal calls
        calls += 1
        return F.mse_loss(model(batch[0]), batch[1]) / calls

    return loss


def attribute():
    def loss(model, batch, past=[0.0]):  # noqa: B006 (that is what is tried)
        loss.calls = getattr(loss, "calls", 0) + 1
        past.append(past[-1] + 0.5)
        return F.mse_loss(model(batch[0]), batch[1]) / (loss.calls + past[-1])

    return loss


def in_global(model, batch):
    global STEPS
    STEPS += 1
    return F.mse_loss(model(batch[0]), batch[1]) / STEPS


def with_global():
    global STEPS
    STEPS = 0  # as a new process begins
    return net(), in_global


def counts_in_model():
    model = net()
    model.calls = 0

    def loss(model, batch):
        model.calls += 1
        return F.mse_loss(model(batch[0]), batch[1]) / model.calls

    return model, loss


class OwnDict(Annealed):
    """Says itself what it keeps, and keeps something that is no data."""

    def __call__(self, model, batch):
        self.last = object()
        return super().__call__(model, batch)

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


class Counts(OwnDict):
    """Its state is data but for what makes missing counts."""

    def state_dict(self):
        return {"calls": defaultdict(int, all=self.calls)}


def test_a_state_dict_that_cannot_be_made_again_from_data_is_told_of_and_ends_no_resumed_run(capsys):
    train(lambda: (net(), Counts()), stop_at=7)
    assert "loss_fn.state_dict() changed since the run began" in capsys.readouterr().err
    train(lambda: (net(), Counts()), resume="run")
    assert "loss_fn.state_dict() had changed by then" in capsys.readouterr().err


class Extra(PastLosses):
    """torch's own way."""

    def get_extra_state(self):
        return list(self.past)

    def set_extra_state(self, state):
        self.past = deque(state, maxlen=4)


STYLES = {
    "object": lambda: (net(), Annealed()),
    "method": lambda: (net(), Annealed().__call__),
    "criterion": lambda: (net(), PastLosses()),
    "buffer that is not saved": lambda: (NotInStateDict(), nn.MSELoss()),
    "tensor made late": lambda: (Late(), nn.MSELoss()),
    "generators": lambda: (net(), Noisy()),
    "optimizer in the loss": lambda: (net(), Adversary()),
    "objects within": lambda: (net(), InParts()),
    "closure": lambda: (net(), closure()),
    "attribute of a function": lambda: (net(), attribute()),
    "global": with_global,
    "attribute of a model": counts_in_model,
    "state_dict": lambda: (net(), OwnDict()),
    "extra state": lambda: (net(), Extra()),
}


@pytest.mark.matrix(4)
@pytest.mark.parametrize("style", STYLES)
def test_a_resumed_run_goes_on_with_what_is_kept_in_python(style, capsys):
    assert_goes_on(STYLES[style])
    assert "warning" not in capsys.readouterr().err


class LowersDropout(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        trainer.model[1].p *= 0.5


def test_a_number_of_a_layer_of_torchs_that_a_callback_moves_is_kept():
    def part(resume=None, epochs=3):
        model = net()
        brim.Trainer(
            model, brim.Loader((X, Y), 8), loss_fn=nn.MSELoss(), optimizer=sgd, epochs=epochs, device="cpu", threads=1,
            run_dir="whole" if epochs == 3 and resume is None else "run", callbacks=[LowersDropout()],
        ).fit(resume=resume)  # fmt: skip
        return model[0].weight.detach()

    whole = part()
    part(epochs=2)
    assert torch.equal(part(resume="run"), whole)


def test_what_is_put_back_is_said(capsys):
    train(STYLES["object"], stop_at=7)
    train(STYLES["object"], resume="run")
    assert "as in the checkpoint: loss_fn.calls" in capsys.readouterr().err


def test_what_the_user_has_changed_between_runs_stays_and_is_told(capsys):
    def begins_at(number):
        loss = Annealed()
        loss.calls = number
        return net(), loss

    train(lambda: begins_at(0), stop_at=7)
    model, loss = begins_at(50)
    train(lambda: (model, loss), resume="run")
    assert loss.calls == 53  # and three more steps
    assert "loss_fn.calls: neither what the run began with nor what the checkpoint holds" in capsys.readouterr().err


def test_state_of_a_loss_that_is_no_more_is_told(capsys):
    train(STYLES["objects within"], stop_at=7)
    train(lambda: (net(), nn.MSELoss()), resume="run")
    assert "the checkpoint holds loss_fn" in capsys.readouterr().err


class Reads(Annealed):
    """Has another source of data than the trainer's."""

    def __init__(self):
        super().__init__()
        self.unlabeled = (number for number in itertools.count())

    def __call__(self, model, batch):
        return super().__call__(model, batch) + next(self.unlabeled) * 1e-3


class Output:
    """What a library's model returns."""


class Remembers(Annealed):
    last = None

    def __call__(self, model, batch):
        had_one, self.last = self.last is not None, Output()
        return F.mse_loss(model(batch[0]), batch[1]) * (1 + had_one)


@pytest.mark.parametrize(("kind", "names"), [(Reads, "loss_fn.calls, loss_fn.unlabeled"), (Remembers, "loss_fn.last")])
def test_what_is_no_data_is_told_once_when_it_moves_and_again_at_resume(kind, names, capsys):
    def make():
        return net(), kind()

    train(make, stop_at=7, checkpoint_every=2)
    assert " ".join(capsys.readouterr().err.split()).count(f"warning: {names} changed since the run began") == 1
    train(make, resume="run", checkpoint_every=2)
    assert f"{names} had changed by then" in " ".join(capsys.readouterr().err.split())


class Caches(nn.Module):
    """Makes what it needs at the first batch, once: objects, and a table that is too large to be saved."""

    def __init__(self):
        super().__init__()
        self.inner = net()
        self.tool = self.table = None

    def forward(self, x):
        if self.tool is None:
            self.tool, self.table = Output(), torch.zeros(5 << 20)
        return self.inner(x)


def test_what_the_first_batch_makes_once_and_is_no_data_is_not_told(capsys):
    train(lambda: (Caches(), nn.MSELoss()), stop_at=7, checkpoint_every=2)
    train(lambda: (Caches(), nn.MSELoss()), resume="run", checkpoint_every=2)
    assert "warning" not in capsys.readouterr().err


class Records(nn.Module):
    """Writes down what it sees, for the user to look at."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def forward(self, input, target):
        loss = F.mse_loss(input, target)
        self.last = Output()
        self.losses.append(loss.item())
        return loss


class Looks(brim.Callback):
    def on_epoch_end(self, trainer, epoch):
        len(trainer.loss_fn.losses)


class Hard(torch.utils.data.Sampler):
    def __init__(self, loss):
        self.loss = loss

    def __iter__(self):
        return iter([place for place, loss in enumerate(self.loss.losses) if loss > 1])


def mining_loader():
    sampler = torch.utils.data.BatchSampler(Hard(Records()), 2, drop_last=False)
    return torch.utils.data.DataLoader([1, 2], batch_sampler=sampler)


@pytest.mark.parametrize(
    ("readers", "kept"), [([], []), ([Looks()], ["loss_fn.losses"]), ([mining_loader()], ["loss_fn.losses"])]
)
def test_what_nobody_reads_is_no_state(readers, kept):
    loss = Records()
    own = UserState(net(), loss, CPU, readers=readers)
    loss(torch.ones(1), torch.zeros(1))
    taken = own.take(net())
    assert [".".join(place) for place in taken["values"]] == kept
    assert taken["unsaved"] == []


class Diverges(Annealed):
    def __call__(self, model, batch):
        loss = super().__call__(model, batch)
        self.late = getattr(self, "late", 0) + 1
        return loss * float("nan") if self.calls == 3 and not hasattr(model, "was_here") else loss


def test_a_run_that_goes_back_has_its_numbers_of_then():
    class Notes(brim.Callback):
        def on_load(self, trainer, step):
            object.__setattr__(trainer.model, "was_here", (trainer.loss_fn.calls, hasattr(trainer.loss_fn, "late")))

    model, loss = net(), Diverges()
    brim.Trainer(
        model, brim.Loader((X, Y), 8), loss_fn=loss, optimizer=sgd, epochs=1, device="cpu", threads=1, run_dir="run",
        on_nan="rewind", callbacks=[Notes()],
    ).fit()  # fmt: skip
    assert model.was_here == (0, False)
    assert (loss.calls, loss.late) == (5, 5)


def look(model, loss_fn):
    return UserState(model, loss_fn, CPU)


def test_ranks_have_their_own_and_others_what_all_had():
    class OfRank(Annealed):
        def __init__(self):
            super().__init__()
            self.place = 0

        def __call__(self, model, batch):
            return super().__call__(model, batch) * self.place

    loss = OfRank()
    own = look(net(), loss)
    of_ranks = []
    for rank in range(2):
        loss.calls, loss.place = 9, rank + 5
        of_ranks.append(own.take(net()))
    fresh = OfRank()
    said = look(net(), fresh).restore(net(), of_ranks)
    assert (fresh.calls, fresh.place) == (9, 0)
    assert len(said) == 1
    assert "loss_fn.place had changed" in said[0]


class Means:
    """A tensor of the device of the batches, made late."""

    mean = None

    def __call__(self, model, batch):
        self.mean = batch.mean(0) if self.mean is None else self.mean.lerp(batch.mean(0), 0.5)
        return (model(batch) - self.mean).square().mean()


@pytest.mark.gpu
def test_a_tensor_of_a_gpu_is_one_again():
    device, loss, fresh = torch.device("cuda"), Means(), Means()
    model = nn.Linear(4, 4).to(device)
    own, other = UserState(model, loss, device), UserState(model, fresh, device)
    loss(model, X.to(device)).backward()
    taken = own.take(model)
    on_host = host_copy(taken)
    loss(model, X.to(device) + 1).backward()
    assert other.restore(model, [on_host]) == []
    assert fresh.mean.is_cuda
    assert torch.equal(fresh.mean, X.to(device).mean(0))


def transformer(name):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    if name == "GPT2":
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=11))
    kind = {"Bert": transformers.BertForMaskedLM, "Llama": transformers.LlamaForCausalLM}[name]
    return kind(getattr(transformers, f"{name}Config")(vocab_size=11, num_key_value_heads=1, **sizes))


@pytest.mark.parametrize("name", ["GPT2", "Bert", "Llama"])
def test_what_transformers_keeps_for_itself_is_its_own_affair(name):
    model = transformer(name)
    tokens = torch.randint(0, 11, (2, 5))

    def loss_fn(model, batch):
        return model(**batch).loss

    own = look(model, loss_fn)
    for length in (4, 5):
        shown = tokens[:, :length].contiguous()
        loss_fn(model, {"input_ids": shown, "labels": shown}).backward()
        assert own.take(model) == {"values": {}, "unsaved": [], "states": {}, "of_readers": {}}


def test_layers_of_torchs_keep_nothing():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GELU(), nn.Flatten(), nn.LazyLinear(3), nn.Dropout()
    )
    model(torch.zeros(2, 1, 4, 4))
    own = look(model, nn.CrossEntropyLoss())
    model(torch.zeros(2, 1, 4, 4)).sum().backward()
    assert own.take(model) == {"values": {}, "unsaved": [], "states": {}, "of_readers": {}}
