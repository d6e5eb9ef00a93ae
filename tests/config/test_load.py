import copy
import datetime
import math

import pytest
import yaml
from helpers.examples import examples
from hypothesis import example, given
from hypothesis import strategies as st

from brim.config.load import (
    apply_override,
    check_config,
    load_config,
    nearest_setting,
    parse_yaml,
    setting_names,
)
from brim.config.recommender import RecommenderConfig
from brim.engine.components.settings import CHOICES
from brim.errors import ConfigError
from brim.workloads.sections import show_config

DEFAULTS = RecommenderConfig().model_dump()
SETTINGS = list(setting_names(RecommenderConfig))


@pytest.fixture
def load_text(tmp_path):
    """Reads a text as a configuration file."""

    def load(text, overrides=()):
        path = tmp_path / "c.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return load_config(path, overrides)

    return load


def refusal(load, *arguments):
    """The one sentence with which something is refused."""
    with pytest.raises(ConfigError) as caught:
        load(*arguments)
    return str(caught.value)


def refused_override(*overrides):
    return refusal(load_config, None, overrides)


# Reading a file


def test_a_file_sets_what_it_names_and_leaves_the_rest_at_its_default(load_text):
    config = load_text("trainer: {epochs: 3}\ntrain_ds:\n  batch_size: 64\n")
    expected = copy.deepcopy(DEFAULTS)
    expected["trainer"]["epochs"], expected["train_ds"]["batch_size"] = 3, 64
    assert config.model_dump() == expected


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "null", "\ufeff{}"])
def test_a_file_that_says_nothing_is_refused_whatever_else_is_set(load_text, tmp_path, text):
    told = refusal(load_text, text)
    assert "holds no settings" in told and "leave it out to train the recommender" in told
    (tmp_path / "empty.yaml").write_text(text)
    assert "empty.yaml holds no settings" in refusal(load_config, tmp_path / "empty.yaml", ["trainer.epochs=2"])


def test_no_file_is_the_default_configuration():
    assert load_config() == RecommenderConfig()


@pytest.mark.parametrize(
    ("written", "value"), [("1e-3", 1e-3), ("1E3", 1000.0), ("1.0e-3", 1e-3), ("'0.5'", 0.5), ("2", 2.0)]
)
def test_a_number_that_yaml_takes_for_a_text_is_a_number(load_text, written, value):
    lr = load_text(f"trainer: {{lr: {written}}}").trainer.lr
    assert (lr, type(lr)) == (value, float)


@pytest.mark.parametrize(("written", "name"), [("32", "32"), ("16", "16"), ("16-mixed", "16-mixed"), ("bf16", "bf16")])
def test_a_precision_may_be_written_with_or_without_quotes(load_text, written, name):
    assert load_text(f"trainer: {{precision: {written}}}").trainer.precision == name
    assert load_text(f"trainer: {{precision: '{written}'}}").trainer.precision == name


def test_a_precision_that_is_not_known_is_refused_with_the_nearest(load_text):
    assert "did you mean 'bf16-mixed'?" in refusal(load_text, "trainer: {precision: b16-mixed}")


def test_a_schedule_may_be_a_name_or_a_mapping(load_text):
    assert load_text("trainer: {scheduler: cosine}").trainer.scheduler == "cosine"
    mapping = {"name": "linear", "warmup": 0.1}
    assert load_text(f"trainer: {{scheduler: {mapping}}}").trainer.scheduler == mapping


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "nope.yaml"
    assert refusal(load_config, path).startswith(f"there is no configuration file {path};")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("forecaster", "a workload is a setting: workload=forecaster"),
        ("forcaster", "a workload is a setting: workload=forecaster"),
        ("trainer.epochs", "a setting has a value: trainer.epochs=VALUE"),
        ("model.quantiles", "a setting has a value: model.quantiles=VALUE"),
        ("recommender.yaml", "name one, or leave it out"),
    ],
)
def test_what_is_meant_by_a_name_that_is_no_file_is_told(name, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert told in refusal(load_config, name)


def test_a_file_that_is_misspelt_is_met_with_the_one_beside_it(tmp_path):
    (tmp_path / "config.yaml").write_text("trainer: {epochs: 1}")
    assert f"did you mean {tmp_path / 'config.yaml'}?" in refusal(load_config, tmp_path / "confg.yml")


@pytest.mark.parametrize("name", ["train.py", "train.py:build", "project.train:build"])
def test_code_in_the_place_of_a_configuration_is_said_to_be_a_setting(name):
    assert f"workload={name}" in refusal(load_config, name)


def test_a_directory_in_the_place_of_a_file_is_refused(tmp_path):
    assert refusal(load_config, tmp_path) == f"cannot read the configuration {tmp_path}: Is a directory"


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"trainer: {run_dir: \xe9}", "epochs: 3".encode("utf-16")])
def test_a_file_that_is_not_utf8_is_refused(load_text, content):
    assert refusal(load_text, content).endswith("c.yaml: it is not UTF-8 text")


def test_a_file_name_that_the_system_refuses_is_refused(tmp_path):
    assert "x" * 300 in refusal(load_config, tmp_path / ("x" * 300))


def test_a_key_written_twice_is_refused_with_its_name_and_line(load_text):
    said = refusal(load_text, "workload: recommender\ntrainer:\n  epochs: 3\n  lr: 1\n  epochs: 4\n")
    assert "the key 'epochs' is there twice" in said
    assert "line 3" in said


@pytest.mark.parametrize("text", ["trainer: {}\ntrainer: {}", "a: 1\n'a': 2", "trainer: {lr: 1, lr: 1}"])
def test_a_key_written_twice_is_refused_at_every_depth(load_text, text):
    assert "is there twice" in refusal(load_text, text)


def test_an_anchor_can_be_used_in_two_sections(load_text):
    config = load_text("train_ds: &size {batch_size: 7}\neval_ds: *size\n")
    assert config.train_ds.batch_size == config.eval_ds.batch_size == 7


def test_a_merged_mapping_yields_to_the_keys_beside_it(load_text):
    config = load_text("train_ds: &size {batch_size: 7}\neval_ds:\n  <<: *size\n  batch_size: 8\n")
    assert (config.train_ds.batch_size, config.eval_ds.batch_size) == (7, 8)


def test_a_tag_that_would_run_code_is_refused_and_runs_nothing(load_text, tmp_path):
    trace = tmp_path / "trace"
    said = refusal(load_text, f"data: !!python/object/apply:os.mkdir ['{trace}']")
    assert "python/object/apply:os.mkdir" in said
    assert not trace.exists()


# Naming what is wrong


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("trainer.epoch", "trainer.epochs"),
        ("epochs", "trainer.epochs"),
        ("batch_size", "train_ds.batch_size"),
        ("trainer.batch_size", "train_ds.batch_size"),
        ("train_ds.batchsize", "train_ds.batch_size"),
        ("lr", "trainer.lr"),
        ("model.embed_dims", "model.embed_dim"),
        ("data.nusers", "data.n_users"),
        ("seed", "trainer.seed"),
        ("k", "eval_ds.k"),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_right_name(wrong, right):
    said = refused_override(f"{wrong}=3")
    assert f"there is no setting '{wrong}'; did you mean '{right}" in said
    assert str(nearest_setting(wrong, RecommenderConfig)).startswith(right)


@pytest.mark.parametrize(
    ("workload", "wrong", "said"),
    [
        ("classifier", "data.path", "did you mean 'data.train'?"),
        ("classifier", "data.folder", "did you mean 'data.train'?"),
        ("classifier", "data.num_classes", "did you mean 'data.classes'?"),
        ("forecaster", "data.csv", "did you mean 'data.path'?"),
        ("forecaster", "data.freq", "data has path, lookback, horizon, target"),
        ("forecaster", "model.num_layers", "did you mean 'model.layers'?"),
        ("recommender", "model.backbone", "model has name, embed_dim"),
        ("recommender", "zzz", "a configuration has workload, data"),
    ],
)
def test_a_setting_that_resembles_none_is_answered_with_those_there_are(workload, wrong, said):
    assert said in refusal(load_config, None, [f"workload={workload}", f"{wrong}=3"])


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("trainer.epochs: 3", "trainer: {epochs: "),
        ("trainr: {epochs: 3}", "mean 'trainer'?"),
        ("1: 2", "key 1"),
        ("trainer:", "trainer: {"),
        ("trainer: {scheduler: {warmup: x}}", "warmup='x'"),
        ("trainer: {lr: 0}", "c.yaml: trainer.lr=0"),
    ],
)
def test_the_message_helps_with_what_was_written(load_text, tmp_path, text, part):
    assert part in refusal(load_text, text).replace(f"{tmp_path}/", "")


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("train_ds.batch_size=0", "train_ds.batch_size=0 cannot be used: input should be greater than or equal to 1"),
        ("data.n_items=3", "data.n_items=3 cannot be used"),
        ("trainer.epochs=many", "trainer.epochs='many' cannot be used"),
        ("trainer.epochs=0", "epochs=0 must be a whole number of at least 1"),
        ("trainer.epochs=2.5", "trainer.epochs=2.5 cannot be used"),
        ("trainer.lr=-1", "lr=-1.0 must be a number above 0"),
        ("trainer.lr=.nan", "lr=nan must be a number above 0"),
        ("eval_ds.k=[]", "eval_ds.k=[] cannot be used"),
        ("workload=recomender", "workload='recomender' is not known; did you mean 'recommender'?"),
        ("workload=vision", "workload='vision' is not known; use 'classifier', 'forecaster', 'recommender'"),
        ("trainer=3", "trainer=3 cannot be used"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_its_name_and_the_reason(override, part):
    assert part in refused_override(override)


@pytest.mark.parametrize(
    "override",
    ["trainer.epochs=true", "trainer.lr=true", "train_ds.batch_size=true"],
)
def test_a_truth_value_is_not_a_number(override):
    assert "cannot be used" in refused_override(override)


def test_more_threads_than_a_machine_can_start_are_refused():
    assert "threads=100000" in refused_override("trainer.threads=100000")


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, today in CHOICES.items() for value in today],
)
def test_every_choice_can_be_written_without_quotes(name, value):
    written = "null" if value is None else value
    beside = ["trainer.monitor=loss"] if name == "mode" else []  # which has no meaning alone
    assert getattr(load_config(None, [f"trainer.{name}={written}", *beside]).trainer, name) == value


def test_a_long_value_is_shown_by_its_beginning():
    said = refused_override(f"trainer.epochs={'x' * 10_000}")
    assert "trainer.epochs='xxx" in said
    assert len(said) < 300


@pytest.mark.parametrize(
    "override",
    [
        f"workload={'x' * 10_000}",
        f"trainer.epochs={'[' * 10_000}",
        f"trainer.strategy={'x' * 10_000}",
    ],
)
def test_a_message_stays_short(override):
    assert len(refused_override(override)) < 1000


# Overrides


def test_overrides_apply_in_order_on_top_of_the_file(load_text):
    config = load_text("trainer: {epochs: 3, lr: 1}", ["trainer.epochs=4", "trainer.epochs=5", "model.embed_dim=8"])
    assert (config.trainer.epochs, config.trainer.lr, config.model.embed_dim) == (5, 1.0, 8)


@pytest.mark.parametrize(
    ("override", "section", "name", "value"),
    [
        ("trainer.lr=1e-3", "trainer", "lr", 1e-3),
        ("trainer.run_dir=a=b", "trainer", "run_dir", "a=b"),
        ("trainer.run_dir=", "trainer", "run_dir", None),
        ("trainer.patience=null", "trainer", "patience", None),
        ("eval_ds.k=[5, 7]", "eval_ds", "k", [5, 7]),
        ("train_ds.shuffle=no", "train_ds", "shuffle", False),
        ("trainer.scheduler.name=cosine", "trainer", "scheduler", {"name": "cosine"}),
        (" trainer.epochs = 3 ", "trainer", "epochs", 3),
    ],
)
def test_an_override_is_read_as_yaml(override, section, name, value):
    assert load_config(None, [override]).model_dump()[section][name] == value


@pytest.mark.parametrize("override", ["trainer.epochs", "=3", ".epochs=3", "trainer.=3", "trainer..epochs=3", "", "="])
def test_an_override_without_a_name_or_a_value_is_refused(override):
    assert refused_override(override) == f"{override!r} is not an override; write it as trainer.epochs=3"


@pytest.mark.parametrize("value", ["[", "{", "'", "*nowhere", "a: b", "!!python/name:os.system", "\x00", "2001-99-99"])
def test_an_override_whose_value_is_not_yaml_is_refused_with_the_override(value):
    assert f"the override {'trainer.epochs=' + value!r}" in refused_override(f"trainer.epochs={value}")


def test_an_override_that_sets_something_else_on_a_second_line_is_refused():
    assert "sets more than one thing" in refused_override("trainer.epochs=3\ntrainer: {epochs: 4}")


def test_an_override_below_something_that_is_not_a_section_is_refused():
    said = refused_override("trainer=3", "trainer.epochs=3")
    assert said == "'trainer.epochs=3' cannot be applied: trainer is not a section"


def test_applying_an_override_leaves_the_values_it_was_given_alone():
    values = {"trainer": {"epochs": 3}}
    assert apply_override(values, "trainer.epochs=4") == {"trainer": {"epochs": 4}}
    assert values == {"trainer": {"epochs": 3}}


# Showing it


def test_every_default_is_shown():
    shown = yaml.safe_load(show_config(load_config()))
    assert shown == DEFAULTS
    assert len(SETTINGS) == sum(len(section) if isinstance(section, dict) else 1 for section in shown.values())


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["trainer.lr=1e-30", "trainer.precision=16", "trainer.compile=true", "trainer.eval_every=5 steps"],
        ["trainer.precision=32", "trainer.threads=2", "trainer.micro_batch=7", "trainer.run_dir='1e3'"],
        ["trainer.run_dir='null'", "trainer.optimizer='no'", "eval_ds.k=[3]", "trainer.scheduler={name: linear}"],
        ["trainer.run_dir='läuft/ça: #1'", "trainer.capture='off'", "data.split_ratio=[1, 1e-3, 0.5]"],
        [r'trainer.run_dir="\ud800\0\n"', "trainer.seed=9000000000000000000"],
    ],
)
def test_what_is_shown_reads_back_as_the_same_configuration(load_text, overrides):
    config = load_config(None, overrides)
    assert load_text(show_config(config)) == config


# Anything at all: ConfigError or a configuration, nothing else

TRAPS = [
    "[" * 5000,
    "{a: " * 5000,
    "- " * 5000,
    "trainer: {epochs: " + "[" * 200 + "]" * 200 + "}",
    "a: &a [*a]",
    "&a {trainer: *a}",
    "workload: &a [*a]",
    "trainer: {scheduler: &a {name: *a}}",
    "trainer: {scheduler: &a {warmup: [*a]}}",
    "eval_ds: {k: &a [*a]}",
    "a: *nowhere",
    "a: 2001-99-99",
    "a: 2001-01-01T25:61:61Z",
    "workload: 2001-01-01",
    f"trainer: {{epochs: {'9' * 5000}}}",
    f"trainer: {{lr: {'9' * 400}}}",
    "trainer: {lr: -.inf}",
    "trainer: {clip_norm: .nan}",
    "trainer: {lr: 1e400}",
    "!!python/object:os.system {}",
    "a: !!python/object/new:type [x]",
    "a: !!timestamp x",
    "a: !!int x",
    "a: !!bool x",
    "a: !!binary x",
    "a: !unknown x",
    "data: !!binary AAAA",
    "trainer: !!set {epochs}",
    "trainer: !!omap [epochs: 1]",
    "!!set {trainer}",
    "1: 2",
    "trainer: {1: 2}",
    "trainer: {null: 2, 1.5: 3, true: 4}",
    "? [trainer]\n: 1",
    "? {trainer: 1}\n: 1",
    "? !!binary AAAA\n: 1",
    "trainer: {scheduler: {1: 2}}",
    "trainer: {scheduler: {name: [x]}}",
    "workload: []",
    "workload: {}",
    "workload:",
    "data: []",
    "<<: 3",
    "trainer: {<<: [{epochs: 3}, 4]}",
    "a: =",
    "%YAML 9.9\n---\n{}",
    "--- 1\n--- 2",
    "a\x00b: 1",
    "\x1b[31m: 1",
    "\ud800: 1",
    '"\\ud800": 1',
    'workload: "\\ud800"',
    'trainer: {"\\ud800": 1}',
    'trainer: {strategy: "a\\nb\\u2028c"}',
    "\t",
    "a: b: c",
    "%",
    "@",
    "`",
    ": ",
    "''",
    "-",
    'a: !!int ""',
    'a: !!float ""',
]


def is_configuration_or_config_error(text, overrides, path):
    """What the configuration promises for any input; anything but a ConfigError makes the test fail."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        config = load_config(path, overrides)
    except ConfigError as error:
        said = str(error)
        return said.splitlines() == [said] and is_printable(said)
    shown = show_config(config)
    return show_config(check_config(parse_yaml(shown, "shown"), "shown")) == shown


def is_printable(said):
    return said.encode("utf-8", "replace").decode() == said  # half a pair of surrogates becomes a question mark


@pytest.mark.parametrize("text", TRAPS)
def test_a_trap_in_a_file_is_refused_in_one_sentence(load_text, text):
    said = refusal(load_text, text)
    assert said.splitlines() == [said]
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "overrides",
    [
        ["a" + ".a" * 5000 + "=1"],
        ["a" + ".a" * 5000 + "=1", "b=1"],
        ["trainer.epochs" + ".a" * 5000 + "=1"],
        ["trainer.scheduler" + ".a" * 5000 + "=1"],
        ["workload" + ".a" * 5000 + "=1"],
    ],
    ids=["unknown", "two", "epochs", "scheduler", "workload"],
)
def test_an_override_with_thousands_of_dots_is_refused(overrides):
    said = refused_override(*overrides)
    assert said.splitlines() == [said]
    assert len(said) < 500


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "c.yaml"


WORDS = st.sampled_from(
    [
        "auto",
        "off",
        "on",
        "1e-3",
        "~",
        "",
        "=",
        "<<",
        "*a",
        "&a",
        "0x",
        "0b1",
        "1_0",
        "1:30",
        "bf16",
        "3 steps",
        "\ud800",
    ]
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, -(10**400)]),
    st.floats(),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, 5e-324, -0.0]),
    st.dates(),
    st.datetimes(),
    st.just(datetime.date.max),
    st.binary(max_size=8),
    st.text(max_size=12),
    st.text(st.characters(categories=["Cc", "Cs", "Zl", "Zp"]), max_size=4),
    WORDS,
    st.sampled_from(SETTINGS),
)
KEYS = st.one_of(
    st.sampled_from([name.rpartition(".")[2] for name in SETTINGS] + list(DEFAULTS)),
    st.text(max_size=8),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.dates(),
    WORDS,
)
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
TOKENS = st.sampled_from(
    [
        *SETTINGS, *DEFAULTS, ": ", ":", "\n", "\n  ", "- ", "[", "]", "{", "}", ", ", "&a ", "*a", "<<: ", "? ", "|\n",
        ">\n", "'", '"', "#", "%", "@", "`", "!", "!!binary ", "!!set ", "!!omap ", "!!timestamp ", "!!bool ",
        "!!int ", "!!float ", "!!null ", "!!python/object:os.system ", "!!python/name:os.system ", "---\n", "...\n",
        "2001-01-01", ".nan", ".inf", "1e-3", "9" * 5000, "0x", "~", "\t", "\x00", "\x07", "\x85", "\u2028", "\ud800",
        "2001-99-99", "\\", "\\ud800", "=", "32",
    ]
)  # fmt: skip


@st.composite
def changed_configurations(draw):
    """A valid configuration with some values replaced, keys renamed, and keys taken out."""
    values = copy.deepcopy(DEFAULTS)
    for name in draw(st.lists(st.sampled_from(SETTINGS), min_size=1, max_size=4, unique=True)):
        section_name, _, key = name.rpartition(".")
        section = values[section_name] if section_name else values
        value = section.pop(key)
        change = draw(st.sampled_from(["replace", "replace", "replace", "rename", "remove"]))
        if change == "replace":
            section[key] = draw(DOCUMENTS)
        elif change == "rename":
            section[draw(KEYS)] = value
    if draw(st.integers(0, 9)) == 0:
        values[draw(st.sampled_from(list(DEFAULTS)))] = draw(DOCUMENTS)
    return values


OVERRIDES = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.builds("{}={}".format, st.sampled_from(SETTINGS), st.one_of(st.text(max_size=10), SCALARS, WORDS)),
        st.builds("{}={}".format, st.lists(st.text(max_size=4), max_size=4).map(".".join), st.text(max_size=10)),
        st.builds("{}={}".format, st.sampled_from([*SETTINGS, *DEFAULTS]), st.lists(TOKENS, max_size=6).map("".join)),
    ),
    max_size=3,
)


@examples(200)
@given(text=st.one_of(st.text(), st.lists(TOKENS, max_size=20).map("".join)), overrides=OVERRIDES)
@example(text="[" * 5000, overrides=[])
@example(text="", overrides=["trainer.lr=" + "[" * 5000])
def test_any_text_is_a_configuration_or_a_config_error(path, text, overrides):
    assert is_configuration_or_config_error(text, overrides, path)


@examples(200)
@given(document=DOCUMENTS, overrides=OVERRIDES)
@example(document={"trainer": {1: 2}, 3: None}, overrides=[])
def test_any_yaml_document_is_a_configuration_or_a_config_error(path, document, overrides):
    assert is_configuration_or_config_error(yaml.dump(document), overrides, path)


@examples(200)
@given(values=changed_configurations(), overrides=st.one_of(st.just([]), OVERRIDES))
@example(values={**DEFAULTS, "trainer": {**DEFAULTS["trainer"], "seed": 10**400}}, overrides=[])
def test_any_change_to_a_valid_configuration_is_a_configuration_or_a_config_error(path, values, overrides):
    assert is_configuration_or_config_error(yaml.dump(values, allow_unicode=True), overrides, path)


@examples(100)
@given(overrides=OVERRIDES)
def test_any_override_of_the_defaults_is_a_configuration_or_a_config_error(path, overrides):
    assert is_configuration_or_config_error("", overrides, path)


# Tiers


@pytest.mark.parametrize(("tier", "batch_size", "use_cache"), [("large", 2048, True), ("medium", 1024, True),
                                                               ("small", 512, False)])  # fmt: skip
def test_a_tier_decides_what_is_not_set(tier, batch_size, use_cache):
    config = load_config(None, [f"trainer.tier={tier}"])
    assert (config.train_ds.batch_size, config.model.use_cache) == (batch_size, use_cache)
    assert config.trainer.tier == tier


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("train_ds.batch_size=64", "train_ds.batch_size=64 contradicts trainer.tier='small', which is batch_size=512"),
        ("model.use_cache=true", "model.use_cache=True contradicts trainer.tier='small', which is use_cache=False"),
    ],
)
def test_what_contradicts_a_tier_is_refused(override, part):
    assert part in refusal(load_config, None, ["trainer.tier=small", override])


def test_what_says_the_same_as_a_tier_is_fine():
    config = load_config(None, ["trainer.tier=small", "train_ds.batch_size=512", "model.use_cache=false"])
    assert config.train_ds.batch_size == 512


@pytest.mark.parametrize("tier", ["tiny", "3", "[large]"])
def test_a_tier_that_is_none_is_refused(tier):
    assert "trainer.tier" in refusal(load_config, None, [f"trainer.tier={tier}"])
