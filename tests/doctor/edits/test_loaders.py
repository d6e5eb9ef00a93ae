from dataclasses import replace

import pytest
import torch
from helpers.observations import finding, loader

from brim.doctor.order import Cures

ARGUMENTS = [
    ("DataLoader(data, batch_size=4)", "DataLoader(data, batch_size=4, num_workers=2, persistent_workers=True)"),
    ("DataLoader(data, 4, num_workers=args.n,)", "DataLoader(data, 4, num_workers=2, persistent_workers=True,)"),
    ("DataLoader(data, 4, True, None, None, 8)", "DataLoader(data, 4, True, None, None, 2, persistent_workers=True)"),
    ("torch.utils.data.DataLoader(dätä)", "torch.utils.data.DataLoader(dätä, num_workers=2, persistent_workers=True)"),
    ("DataLoader(data, **options)", None),
    ("DataLoader(*arguments)", None),
    ("DataLoader((data))", None),
    ("make(data)", None),
]


@pytest.mark.parametrize(("before", "after"), ARGUMENTS)
def test_loader_arguments_are_set_where_the_loader_is_made(suggested, before, after):
    wanted = finding("no-workers", cures=Cures(num_workers=2, persistent_workers=True))
    text = "import torch\n# é\nloader = {}  # all of it\n"
    made = suggested(text.format(before), wanted, loaders=(loader(line="train.py:3"),))
    assert made == (None if after is None else text.format(after))


def test_loader_arguments_over_several_lines_keep_their_form(suggested):
    text = "loader = DataLoader(\n    data,\n    batch_size=4,  # small\n    prefetch_factor=4,\n)\n"
    made = suggested(
        text, finding("workers-cost-more", cures=Cures(num_workers=0)), loaders=(loader(line="train.py:1"),)
    )
    assert "prefetch_factor=None, num_workers=0,\n)" in made and "batch_size=4,  # small" in made


def test_a_loader_without_workers_has_none_of_their_settings(suggested):
    text = 'loader = DataLoader(data, 4, num_workers=8, multiprocessing_context="fork", timeout=60)\n'
    made = suggested(
        text, finding("workers-cost-more", cures=Cures(num_workers=0)), loaders=(loader(line="train.py:1"),)
    )
    assert made == "loader = DataLoader(data, 4, num_workers=0, multiprocessing_context=None, timeout=0)\n"


def test_columns_go_into_brims_loader_with_the_same_order_of_an_unshuffled_one(suggested):
    text = '"""Training."""\nimport torch\nloader = DataLoader(data, 64, num_workers=4, pin_memory=True)\n'
    columns = loader(line="train.py:3", columns=True)
    made = suggested(text, finding("per-sample-access"), loaders=(columns,))
    assert (
        made == '"""Training."""\nimport torch\nimport brim\nloader = brim.Loader(data, batch_size=64, shuffle=False)\n'
    )
    assert (
        suggested(text.replace("pin_memory=True", "sampler=s"), finding("per-sample-access"), loaders=(columns,))
        is None
    )
    assert suggested(text + "loader.dataset\n", finding("per-sample-access"), loaders=(columns,)) is None
    assert suggested(text, finding("per-sample-access"), loaders=(replace(columns, columns=False),)) is None


def test_brims_loader_gives_what_the_script_would_get():
    import brim

    data = torch.utils.data.TensorDataset(torch.arange(10), torch.arange(10.0))
    plain = [[column.tolist() for column in batch] for batch in torch.utils.data.DataLoader(data, batch_size=4)]
    assert [[column.tolist() for column in batch] for batch in brim.Loader(data, batch_size=4, shuffle=False)] == plain


def test_a_trainer_of_transformers_has_the_settings_under_its_own_names(suggested):
    text = "args = TrainingArguments(\n    'out',\n    report_to=[],\n)\nTrainer(model, args, data).train()\n"
    wanted = finding("no-workers", cures=Cures(num_workers=2, persistent_workers=True))
    made = suggested(text, wanted, loaders=(loader(line="train.py:5"),))
    assert "report_to=[], dataloader_num_workers=2, dataloader_persistent_workers=True,\n)" in made
    assert suggested(text + "b = TrainingArguments()\n", wanted, loaders=(loader(line="train.py:5"),)) is None
