"""Sparse gradients: what they hold, and what optimizers make of it."""

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adagrad, SparseAdam

from brim.errors import ModelError
from brim.hardware.cards import H200
from brim.memory import Forecast, forecast
from brim.memory.allocator.allocator import rounded

ROWS, WIDTH, BATCH = 5_000, 64, 300
TABLE = rounded(ROWS * WIDTH * 4)
LOOKUPS = torch.arange(BATCH) % 100  # a hundred rows, three times each


class Table(nn.Module):
    """One table, looked up."""

    def __init__(self, kind: type[nn.Module] = nn.Embedding, sparse: bool = True, **settings) -> None:
        super().__init__()
        self.table = kind(ROWS, WIDTH, sparse=sparse, **settings)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.table(rows)


def predict(optimizer, model=Table, rows: torch.Tensor = LOOKUPS, **more) -> Forecast:
    return forecast(
        model, lambda n: ((rows,), {}), lambda out: out.float().pow(2).sum(), lambda p: optimizer(list(p), lr=0.1),
        batch_size=BATCH, card=H200, **more,
    )  # fmt: skip


def test_a_gradient_is_its_indices_and_its_rows() -> None:
    found = predict(SGD)
    assert found.parts["parameters"] == TABLE
    dense = predict(SGD, lambda: Table(sparse=False))
    assert found.allocated <= TABLE + 6 * rounded(BATCH * WIDTH * 4) < dense.allocated


def test_the_state_of_sparse_adam_is_dense() -> None:
    assert predict(SparseAdam).parts["optimizer"] == 2 * TABLE
    assert predict(Adagrad).parts["optimizer"] >= TABLE


def test_rows_that_come_several_times_become_one() -> None:
    once, thrice = predict(SparseAdam, rows=torch.arange(BATCH)), predict(SparseAdam)
    assert not once.notes
    assert not thrice.notes
    rows = (BATCH - 100) * WIDTH * 4  # that many less to compute with
    assert once.allocated - thrice.allocated >= 3 * rows


def test_rows_that_are_not_known_are_bounded_and_a_note_says_so() -> None:
    class Computed(Table):
        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.table((torch.rand(len(rows)) * ROWS).long())

    found = predict(SparseAdam, Computed)
    assert any("rows a sparse gradient has" in note for note in found.notes)
    assert found.allocated >= predict(SparseAdam, rows=torch.arange(BATCH)).allocated


def test_bags_have_a_row_for_every_entry() -> None:
    bags = torch.arange(BATCH).view(-1, 3)
    found = predict(SparseAdam, lambda: Table(nn.EmbeddingBag, mode="sum"), bags)
    assert found.parts["optimizer"] == 2 * TABLE
    assert found.allocated > 3 * TABLE + 3 * BATCH * WIDTH * 4


def test_gradients_of_several_batches_are_put_one_after_the_other() -> None:
    assert predict(SparseAdam, accumulation=2).allocated > predict(SparseAdam).allocated


def test_what_torch_refuses_is_told_as_the_users_error() -> None:
    with pytest.raises(ModelError, match="does not support sparse gradients"):
        predict(torch.optim.AdamW)


@pytest.mark.skipif(tuple(map(int, torch.__version__.split(".")[:2])) > (2, 13), reason="later torch clips these")
def test_clipping_that_torch_refuses_is_told_as_the_users_error() -> None:
    with pytest.raises(ModelError, match="clipping the gradients failed"):
        predict(SparseAdam, clip_norm=1.0)


def test_dense_parts_of_the_model_train_beside_it() -> None:
    class Both(Table):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(WIDTH, 1)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.head(super().forward(rows))

    assert predict(SGD, Both).parts["parameters"] >= TABLE + WIDTH * 4


class Graph(nn.Module):
    """LightGCN: rows of a table, added up over the edges of a graph that is no buffer."""

    def __init__(self, layout: torch.layout = torch.sparse_coo) -> None:
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH)
        edges = torch.arange(2 * ROWS) % ROWS, torch.arange(2 * ROWS) // 2
        graph = torch.sparse_coo_tensor(torch.stack(edges), torch.ones(2 * ROWS), (ROWS, ROWS), is_coalesced=True)
        self.graph = graph if layout == torch.sparse_coo else graph.to_sparse_csr()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(self.graph, self.table.weight)[rows]


@pytest.mark.parametrize("exists", [True, False])
def test_products_with_a_graph_are_dense_and_what_cusparse_takes_is_told(exists: bool) -> None:
    model = Graph()
    found = predict(SGD, model if exists else Graph)
    assert found.allocated < 12 * TABLE  # a dense graph of so many rows is 78 times as large
    assert found.notes == (
        "what cuSPARSE takes for itself in a product with a sparse tensor is not known, and not counted",
    )
    assert found.parts["parameters"] == TABLE + rounded(2 * ROWS * 2 * 8) + rounded(2 * ROWS * 4)
    assert model.table.weight.grad is None


def test_a_graph_may_come_with_the_batch() -> None:
    class Given(nn.Linear):
        def forward(self, x: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(graph, super().forward(x))

    graph = torch.eye(ROWS).to_sparse()
    found = forecast(
        lambda: Given(WIDTH, WIDTH), lambda n: ((torch.randn(ROWS, WIDTH), graph), {}), lambda out: out.float().sum(),
        batch_size=1, card=H200,
    )  # fmt: skip
    assert found.allocated < 100 << 20
    assert graph.is_sparse


def test_another_layout_is_refused_in_a_sentence() -> None:
    with pytest.raises(ModelError, match=r"^the model holds a tensor of layout torch\.sparse_csr, .*torch\.sparse_coo"):
        predict(SGD, Graph(torch.sparse_csr))
