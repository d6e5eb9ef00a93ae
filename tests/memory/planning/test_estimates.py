import pytest
import torch
from torch import nn

import brim
from brim.errors import BrimError, CannotFit, ConfigError
from brim.memory import check_gpu_memory, estimate_memory_usage, get_optimal_batch_size, suggest_batch_size
from brim.workloads.recommender import BPR, EmbeddedDataset
from brim.workloads.recommender.gpt2_recommender import GPT2RecommenderEnhanced

N_USERS, N_ITEMS = 60, 40
CARD = "NVIDIA H200"


@pytest.fixture(scope="module")
def dataset():
    return EmbeddedDataset(N_USERS, N_ITEMS)


@pytest.fixture
def model(dataset):
    return GPT2RecommenderEnhanced(N_USERS, N_ITEMS, embed_dim=8, dataset=dataset, hidden_dim=16)


def rows(n):
    return (torch.empty(n, 64),), {}


def test_the_calls_that_people_know(model, capsys):
    usage = estimate_memory_usage(model=model, batch_size=2048, num_gpus=8, use_cache=True)
    assert 0.5 < usage["total_per_gpu"] < 5  # GB: mostly the context
    largest = suggest_batch_size(model=model, num_gpus=8, target_memory_gb=8, use_cache=True)
    assert largest > 2048
    assert largest % 8 == 0
    assert get_optimal_batch_size(num_gpus=8, base_batch_size=2048) == 256
    check_gpu_memory()
    assert capsys.readouterr().out.strip()


def test_they_are_names_of_brim():
    assert brim.estimate_memory_usage is estimate_memory_usage
    assert brim.suggest_batch_size is suggest_batch_size
    assert brim.get_optimal_batch_size is get_optimal_batch_size
    assert brim.check_gpu_memory is check_gpu_memory


def test_the_parts_add_up(model):
    usage = estimate_memory_usage(model, 2048, 8, card=CARD)
    assert usage.pop("batch_size_per_gpu") == 256
    total = usage.pop("total_per_gpu")
    assert set(usage) >= {"parameters", "gradients", "optimizer_state", "activations", "cached_embeddings", "context"}
    assert sum(usage.values()) == pytest.approx(total)


def test_it_is_the_forecast_of_the_share_of_each_gpu():
    linear = nn.Linear(64, 64)
    usage = estimate_memory_usage(linear, 2048, 8, batch=rows, card=CARD)
    made = brim.forecast(linear, rows, batch_size=256, card=CARD, gpus=8, strategy="ddp")
    assert usage["total_per_gpu"] == made.device / 1e9
    alone = estimate_memory_usage(linear, 256, 1, batch=rows, card=CARD)
    assert alone["total_per_gpu"] == brim.forecast(linear, rows, batch_size=256, card=CARD).device / 1e9


def test_what_is_kept_is_counted(model):
    with_cache = estimate_memory_usage(model, 256, use_cache=True, card=CARD)
    without = estimate_memory_usage(model, 256, use_cache=False, card=CARD)
    towers = (model.users, model.items)
    assert N_ITEMS < sum(len(tower.token_ids) for tower in towers) < N_USERS + N_ITEMS  # those that several share: once
    # Whitened, as the MLP reads them, in blocks of 512 bytes.
    kept = [len(tower.token_ids) * tower.whitening.shape[1] * 4 for tower in towers]
    assert with_cache["cached_embeddings"] == sum(-(-size // 512) * 512 for size in kept) / 1e9
    assert without["cached_embeddings"] == 0
    assert without["temporary"] > with_cache["temporary"]  # every step encodes its texts


@pytest.mark.parametrize("is_filled", [False, True])
@pytest.mark.parametrize("asked", [True, False])
def test_the_model_stays_as_it_was(model, asked, is_filled):
    if is_filled:
        model.calculate_loss(model.example_batch(4)).backward()
        model.zero_grad(set_to_none=True)
    model.eval()
    encodings = model.users.encodings
    before = {name: value.clone() for name, value in model.state_dict().items()}
    estimate_memory_usage(model, 256, use_cache=asked, card=CARD)
    assert model.use_cache
    assert model.users.encodings is encodings
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert torch.isfinite(model.calculate_loss(model.example_batch(4)))


def test_random_numbers_are_left_alone():
    model = BPR(10, 20)
    before = torch.random.get_rng_state()
    estimate_memory_usage(model, 8, card=CARD)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_cache_that_gpt2_in_training_cannot_have_is_refused(dataset):
    trained = GPT2RecommenderEnhanced(
        N_USERS, N_ITEMS, embed_dim=8, dataset=dataset, hidden_dim=16, use_cache=False, freeze_gpt2=False
    )
    with pytest.raises(BrimError, match="GPT-2 cannot be trained with it"):
        estimate_memory_usage(trained, 64, use_cache=True)
    assert estimate_memory_usage(trained, 64, use_cache=False, card=CARD)["gradients"] > 0


def test_ids_alone():
    usage = estimate_memory_usage(BPR(1000, 2000), 64, card=CARD)
    assert usage["parameters"] == pytest.approx(3000 * 64 * 4 / 1e9)
    assert usage["optimizer_state"] == pytest.approx(2 * usage["parameters"], rel=0.01)


def test_a_cache_that_a_model_does_not_have_is_refused():
    with pytest.raises(ConfigError, match="use_cache=True was asked for, and BPR keeps no cache"):
        estimate_memory_usage(BPR(10, 20), 64, use_cache=True)


@pytest.mark.parametrize("call", [lambda m: estimate_memory_usage(m, 64), lambda m: suggest_batch_size(m)])
def test_a_model_that_nobody_knows_how_to_call_is_one_sentence(call):
    with pytest.raises(ConfigError, match="how Linear is called is not known; pass batch=lambda n: ") as refused:
        call(nn.Linear(4, 4))
    assert "loss=" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_any_model_with_a_batch_and_a_loss():
    linear = nn.Linear(64, 64)
    usage = estimate_memory_usage(linear, 64, batch=rows, loss=lambda out: out.sum(), card=CARD)
    assert usage["parameters"] == pytest.approx(65 * 64 * 4 / 1e9, rel=0.1)
    small, large = (
        suggest_batch_size(linear, target_memory_gb=gb, batch=rows, loss=lambda out: out.sum(), card=CARD)
        for gb in (2, 4)
    )
    assert 0 < small < large


def test_the_optimizer_and_the_precision_count():
    linear = nn.Linear(64, 64)

    def state(optimizer):
        return estimate_memory_usage(linear, 64, batch=rows, optimizer=optimizer, card=CARD)["optimizer_state"]

    assert state(lambda p: torch.optim.SGD(p, lr=0.1)) == 0
    assert state(None) > 0
    wide = {p: estimate_memory_usage(linear, 1 << 20, batch=rows, precision=p, card=CARD) for p in ("32", "bf16")}
    assert wide["bf16"]["total_per_gpu"] != wide["32"]["total_per_gpu"]


@pytest.mark.parametrize(
    "wrong", [{"num_gpus": 0}, {"num_gpus": 1.5}, {"num_gpus": True}, {"batch_size": 0}, {"batch_size": "8"}], ids=str
)
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ConfigError, match="must be a whole number of at least 1"):
        estimate_memory_usage(BPR(10, 20), **{"batch_size": 8, **wrong})


@pytest.mark.parametrize(("gpus", "batch", "share"), [(8, 2048, 256), (1, 7, 7), (3, 10, 4), (8, 1, 1)])
def test_shares_are_rounded_up(gpus, batch, share):
    assert get_optimal_batch_size(gpus, batch) == share


@pytest.mark.parametrize("batch", [1, 7, 2048])
def test_a_cpu_computes_all_of_a_batch(batch):
    assert get_optimal_batch_size(0, batch) == batch


@pytest.mark.parametrize("gpus", [-1, False, 0.0, "0", None])
def test_other_numbers_of_gpus_are_refused(gpus):
    with pytest.raises(ConfigError, match="num_gpus"):
        get_optimal_batch_size(gpus)


def test_the_default_batch_is_2048():
    assert get_optimal_batch_size(8) == 256


@pytest.mark.parametrize("target", [0, -1, "x"])
def test_a_bad_target_is_refused(target):
    with pytest.raises(ConfigError, match="target_memory_gb"):
        suggest_batch_size(BPR(10, 20), target_memory_gb=target)


def test_a_target_into_which_nothing_fits_is_refused():
    with pytest.raises(CannotFit, match="are missing"):
        suggest_batch_size(BPR(1000, 2000), target_memory_gb=0.001, card=CARD)


def test_more_gpus_take_more():
    one, eight = (suggest_batch_size(BPR(1000, 2000), n, target_memory_gb=2, card=CARD) for n in (1, 8))
    assert one * 7 < eight <= one * 8


def test_what_is_suggested_is_estimated_to_fit():
    model = BPR(1000, 2000)
    largest = suggest_batch_size(model, target_memory_gb=2, card=CARD)
    assert estimate_memory_usage(model, largest, card=CARD)["total_per_gpu"] <= 2


def test_use_cache_counts_for_models_that_say_how_they_are_called():
    class Cached(nn.Linear):
        use_cache = True

        def forward(self, x):
            return super().forward(x) if self.use_cache else super().forward(x).repeat(1, 100)

    kept, fresh = (
        estimate_memory_usage(Cached(64, 64), 4096, use_cache=wanted, batch=rows, card=CARD)["total_per_gpu"]
        for wanted in (True, False)
    )
    assert kept < fresh


@pytest.mark.slow
def test_a_suggestion_without_a_cache_takes_few_passes_through_the_model(model, monkeypatch):
    calls = []
    calculate_loss = GPT2RecommenderEnhanced.calculate_loss
    monkeypatch.setattr(
        GPT2RecommenderEnhanced, "calculate_loss", lambda *arguments: calls.append(1) or calculate_loss(*arguments)
    )
    assert suggest_batch_size(model, num_gpus=8, target_memory_gb=8, use_cache=False, card=CARD) >= 2048
    assert 0 < len(calls) <= 20, len(calls)


# The GPUs present


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert check_gpu_memory() == "no GPU in this machine"
    assert capsys.readouterr().out == "no GPU in this machine\n"


def test_with_gpus_it_is_a_line_for_each(monkeypatch, capsys):
    class Properties:
        total_memory = 24 * 10**9

    for name, answer in {
        "device_count": lambda: 2, "get_device_properties": lambda index: Properties(),
        "memory_allocated": lambda index: 10**9, "memory_reserved": lambda index: 2 * 10**9,
        "get_device_name": lambda index: "NVIDIA X",
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, answer)
    lines = check_gpu_memory().splitlines()
    assert lines == [
        f"cuda:{i} NVIDIA X: 1.00 GB allocated / 2.00 GB reserved / 24.00 GB total" for i in (0, 1)
    ]  # fmt: skip
    assert capsys.readouterr().out.splitlines() == lines
