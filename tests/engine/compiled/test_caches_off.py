from types import SimpleNamespace

from torch import nn

from brim.engine.compiled.caches_off import caching_configs, without_caches


def model(use_cache):
    made = nn.Linear(1, 1)
    made.config = SimpleNamespace(use_cache=use_cache)
    return made


def test_caches_are_off_for_a_while_and_then_as_they_were():
    cached = model(True)
    with without_caches(caching_configs(cached, None)):
        assert cached.config.use_cache is False
    assert cached.config.use_cache is True


def test_a_model_without_caches_has_none_to_switch_off():
    assert caching_configs(model(False), None) == [] == caching_configs(nn.Linear(1, 1), None)


def test_caches_stay_on_where_the_loss_reads_them():
    assert caching_configs(model(True), lambda model, batch: model(batch).past_key_values) == []
