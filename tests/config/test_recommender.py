import pytest
from pydantic import ValidationError

from brim.config import load_config
from brim.config.recommender import TRAINER_DEFAULTS, DataSection, ModelSection, RecommenderConfig
from brim.config.recommender_workload import largest_stage, stages_of
from brim.errors import ConfigError
from brim.workloads.recommender.stages import Stage
from brim.workloads.sections import TrainerSection


def test_the_workloads_trainer_defaults_replace_the_trainers_own():
    trainer = RecommenderConfig().trainer.model_dump()
    assert trainer == {**TrainerSection().model_dump(), **TRAINER_DEFAULTS}


def test_the_workloads_trainer_defaults_are_not_those_of_the_trainer():
    """Otherwise the test above shows nothing."""
    own = TrainerSection().model_dump()
    assert all(own[name] != value for name, value in TRAINER_DEFAULTS.items())


def test_setting_one_key_of_the_trainer_keeps_the_workloads_other_defaults():
    trainer = load_config(None, ["trainer.lr=0.5"]).trainer
    assert (trainer.lr, trainer.epochs, trainer.patience) == (0.5, TRAINER_DEFAULTS["epochs"], 5)


def test_an_empty_configuration_is_the_default_one():
    assert load_config() == RecommenderConfig()


def test_two_configurations_share_nothing_that_can_change():
    first, second = RecommenderConfig(), RecommenderConfig()
    first.eval_ds.k.append(5)
    first.data.split_ratio[0] = 0.0
    first.trainer.epochs = 7
    assert second == RecommenderConfig()
    assert second.eval_ds.k == [10, 20]


@pytest.mark.parametrize(
    ("section", "values"),
    [
        (DataSection, {"name": "movielens"}),
        (DataSection, {"n_users": 0}),
        (DataSection, {"n_items": 29}),
        (DataSection, {"split_ratio": "most"}),
        (DataSection, {"seed": 1.5}),
        (ModelSection, {"name": "gpt"}),
        (ModelSection, {"embed_dim": 0}),
        (RecommenderConfig, {"workload": "forecaster"}),
        (RecommenderConfig, {"trainr": {}}),
    ],
    ids=str,
)
def test_values_that_cannot_be_used_are_refused(section, values):
    with pytest.raises(ValidationError, match=next(iter(values))):
        section(**values)


def test_every_setting_of_data_and_model_is_described():
    fields = {**DataSection.model_fields, **ModelSection.model_fields}
    assert [name for name, field in fields.items() if not field.description] == []


STAGES = ["model.name=gpt2", "stages=[{epochs: 3}, {epochs: 2, use_cache: false, freeze_gpt2: false, lr: 1e-4}]"]


def test_stages_take_what_they_leave_empty_from_the_model_and_the_trainer():
    config = load_config(None, [*STAGES, "trainer.lr=0.01"])
    assert stages_of(config) == [Stage(3, True, True, 0.01, 0.01), Stage(2, False, False, 1e-4, 1e-4)]


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        ([*STAGES, "trainer.epochs=7"], "trainer.epochs=7 contradicts stages, which have 5 in all"),
        ([*STAGES, "trainer.max_steps=7"], "stages are counted in epochs"),
        ([*STAGES, "trainer.scheduler=cosine"], "stages have learning rates of their own"),
        (["model.name=bpr", STAGES[1]], "this run has model.name=bpr: leave them out"),
        (["stages=[{lr: 1}]"], "epochs"),
        (["model.lora=8"], "adapters that would never be trained"),
        (["model.lora=8", "stages=[{epochs: 3}]"], "adapters that would never be trained"),
        (["model.pooling=max"], "model.pooling"),
    ],
)
def test_stages_and_adapters_that_cannot_work_are_refused(overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load_config(None, overrides)


def test_a_plan_is_made_for_the_stage_that_takes_the_most_memory():
    section = largest_stage(load_config(None, STAGES))
    assert (section.use_cache, section.freeze_gpt2) == (False, False)
    assert largest_stage(load_config(None, [])) == ModelSection()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["data.path=ml-100k"], "path would do nothing for the embedded data; add name=recbole"),
        (["data.min_rating=3"], "min_rating would do nothing for the embedded data"),
        (["data.split_files=split"], "split_files would do nothing for the embedded data"),
        (["data.name=recbole", "data.path=x", "data.split_files=y", "data.min_rating=3"], "so min_rating would do"),
        (["model.regularisation=9"], "regularisation would do nothing for name=gpt2, but for name=linear"),
        (
            ["model.name=linear", "model.temperature=2"],
            "temperature would do nothing for name=linear, but for name=his",
        ),
        (["model.name=linear", "trainer.lr=1"], "the command line: model.name=linear is solved, not trained, so train"),
    ],
    ids=str,
)
def test_settings_that_would_do_nothing_are_refused(settings, told):
    with pytest.raises(ConfigError) as refused:
        load_config(None, settings)
    assert told in str(refused.value) and "{" not in str(refused.value)


def test_the_configuration_that_a_run_has_written_down_can_be_read_again():
    for settings in ([], ["data.name=recbole", "data.path=x", "data.split_files=y"], ["model.name=linear"]):
        config = load_config(None, settings)
        assert RecommenderConfig.model_validate(config.model_dump()) == config
