"""Names of weights, without what wrappers put into them."""

from brim.engine.state.weight_names import bare, plain_name


def test_a_bare_name_has_no_wrappers():
    assert bare("module.a._orig_mod.b.weight") == "a.b.weight"


def test_a_users_own_module_keeps_its_name():
    assert plain_name("module.a._orig_mod._checkpoint_wrapped_module.b.weight") == "module.a.b.weight"
