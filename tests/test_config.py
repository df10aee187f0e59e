"""Loading, overriding and saving configurations."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mone import config
from mone.config_values import fields
from mone.configs.base import base
from mone.errors import ConfigError

HEADER = "from mone.configs.base import base\n\ndef get_config(arg=''):\n  c = base()\n"


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a configuration file with a body and returns its path."""

    def write(body: str, name: str = "mine.py") -> str:
        path = tmp_path / name
        path.write_text(HEADER + "".join(f"  {line}\n" for line in body.splitlines()))
        return str(path)

    return write


def test_names_are_experiments_only():
    names = config.names()
    methods = {"vit", "matvit", "mone", "mod"}
    for group in ("embedded", "fashion_mnist", "imagenet1k", "imagenet21k"):
        assert methods <= {n.split("/")[1] for n in names if n.startswith(f"{group}/")}
    assert names == sorted(names)
    assert all(n.count("/") == 1 and "__init__" not in n for n in names)


def test_listing_imports_neither_jax_nor_an_experiment():
    code = "import sys; from mone import config; config.names(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"jax", "flax", "tensorflow", "mone.configs.embedded.mone"} & set(
        done.stdout.split()
    )


def test_load_by_name_with_argument():
    c = config.load("imagenet1k/mone:Ti/16,e_c=0.5")
    assert c.model.variant == "Ti/16"
    assert (c.budget.adaptive, c.budget.e_c) == (False, 0.5)
    assert c.is_locked


def test_load_by_path_with_argument_and_colon_in_directory(tmp_path):
    folder = tmp_path / "a:b"
    folder.mkdir()
    path = folder / "mine.py"
    path.write_text(HEADER + "  c.data.path = arg\n  c.budget.choices = (1, 0.5)\n  return c\n")
    c = config.load(f"{path}:x/y:z,k=1")
    assert c.data.path == "x/y:z,k=1"
    assert c.name == "mine"
    assert [type(x) for x in c.budget.choices] == [float, float]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fashion_mnist/mon", "fashion_mnist/mone"),
        ("nothing/like_it", "shipped: embedded/"),
        ("mone", "mone"),
        ("does/not/exist.py", "no such file"),
        ("fashion_mnist/mone:expert=3", "experts=4"),
        ("imagenet1k/vit:X/16", "Ti, S, B, L"),
    ],
)
def test_load_refuses_unknown_experiments_and_arguments(name, said):
    with pytest.raises(ConfigError, match=name.split(":")[0]) as e:
        config.load(name)
    assert said in str(e.value)
    assert "\n" not in str(e.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("c.model.depht = 3\nreturn c", "model.depht: no such field; did you mean model.depth"),
        ("c.seed = True\nreturn c", "seed=True: must be a whole number"),
        ("c.budget.choices = (0.2, 'x')\nreturn c", "budget.choices[1]='x': must be a number"),
        ("c.model.widths = (8.0,)\nreturn c", "model.widths[0]=8.0: must be a whole number"),
        ("c.seed = 'x'\nreturn c", "line 5"),
        ("c.modle.depth = 3\nreturn c", "modle"),
        ("return c.to_dict()['seed']", "int in place of a ConfigDict"),
        ("return (", "SyntaxError"),
        ("import nowhere_to_be_found", "nowhere_to_be_found"),
    ],
)
def test_load_says_what_is_wrong_with_a_file(file, body, said):
    path = file(body)
    with pytest.raises(ConfigError) as e:
        config.load(path)
    assert said in str(e.value)
    assert path in str(e.value)
    assert len(str(e.value)) < 400


def test_load_needs_get_config(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    with pytest.raises(ConfigError, match="does not define get_config"):
        config.load(str(path))


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("seed=7", 7),
        ("num_epochs=3", 3.0),
        ("optimizer.learning_rate=3e-4", 3e-4),
        ("data.flip=true", True),
        ("data.flip=False", False),
        ("data.path=/a b/c=d", "/a b/c=d"),
        ("data.path=None", "None"),
        ("data.path=", ""),
        ("model.widths=(16, 64)", (16, 64)),
        ("model.widths=()", ()),
        ("eval.e_c=0.2,1", (0.2, 1.0)),
        ("eval.e_c=0.2", (0.2,)),
        ("eval.e_c=[0.2, 0.4]", (0.2, 0.4)),
    ],
)
def test_override(override, value):
    c = config.load("fashion_mnist/mone", [override])
    found = dict(fields(c))[override.split("=")[0]]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("modle.depth=3", "modle.depth: no such field; did you mean model.depth"),
        ("dropout=0.1", "did you mean model.dropout?"),
        ("loss.smoothing=0.1", "did you mean loss.label_smoothing?"),
        ("qqq=1", "valid at the top: batch_size"),
        ("mesh.qqq=1", "valid in mesh: data, fsdp"),
        ("model=3", "model is a section"),
        ("seed", "must be field=value"),
        ("seed=0.5", "seed=0.5: must be a whole number"),
        ("seed=None", "seed=None: must be a whole number"),
        ("seed=", "seed='': must be a whole number"),
        ("optimizer.learning_rate=fast", "'fast': must be a number"),
        ("optimizer.learning_rate=1e999", "must be a finite number"),
        ("data.flip=1", "data.flip='1': must be true or false"),
        ("eval.e_c=a,b", "eval.e_c='a,b': must be a tuple, such as (0.2, "),
        ("eval.e_c=(0.2,(1,))", "eval.e_c[1]=(1,): must be a number"),
        ("model.widths=16,32.5", "model.widths[1]=32.5: must be a whole number"),
    ],
)
def test_override_refuses(override, said):
    with pytest.raises(ConfigError) as e:
        config.load("fashion_mnist/mone", [override])
    assert said in str(e.value)


def test_later_override_wins_and_a_bad_one_is_found_after_a_good_one():
    assert config.load("embedded/vit", ["seed=1", "seed=2"]).seed == 2
    with pytest.raises(ConfigError, match="sead"):
        config.load("embedded/vit", ["seed=1", "sead=2"])


def test_override_leaves_the_original_alone():
    c = config.load("embedded/mone")
    changed = config.override(c, ["data.path=/d", "eval.e_c=0.5"], sections=("data", "eval"))
    assert (changed.data.path, changed.eval.e_c) == ("/d", (0.5,))
    assert c == config.load("embedded/mone")
    assert config.override(c, []) == c
    with pytest.raises(AttributeError):
        changed.data.paht = ""


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.depth=3", "model.depth=3: a trained run keeps this field; those of data and eval"),
        ("batch_size=64", "did you mean eval.batch_size?"),
        ("seed=1", "those of data and eval can be changed"),
        ("data.pth=/d", "did you mean data.path"),
        ("database.path=/d", "no such field"),
        ("eval=3", "eval is a section"),
        ("eval.ema=1", "must be true or false"),
    ],
)
def test_override_of_some_sections_refuses(override, said):
    with pytest.raises(ConfigError) as e:
        config.override(config.load("embedded/mone"), [override], sections=("data", "eval"))
    assert said in str(e.value)


def _value(default):
    """Return a strategy for values of a field's type."""
    finite = st.floats(allow_nan=False, allow_infinity=False)
    kinds = {bool: st.booleans(), int: st.integers(), float: finite, str: st.text()}
    if isinstance(default, tuple):
        element = kinds[type(default[0])] if default else st.integers()
        return st.lists(element, max_size=4).map(tuple)
    return kinds[type(default)]


@settings(max_examples=25, deadline=None)
@given(st.fixed_dictionaries({name: _value(value) for name, value in fields(base())}))
def test_json_round_trip_is_exact(values):
    c = base()
    for name, value in values.items():
        *sections, leaf = name.split(".")
        section = c
        for key in sections:
            section = section[key]
        section[leaf] = value
    back = config.from_json(config.to_json(c.lock()))
    assert back == c
    assert [type(v) for _, v in fields(back)] == [type(v) for _, v in fields(c)]
    assert config.to_json(back) == config.to_json(c)


def test_from_json_fills_in_fields_that_are_younger_than_the_text():
    assert config.from_json('{"seed": 3}').seed == 3
    assert config.from_json('{"seed": 3}').model.width == base().model.width


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a configuration in JSON"),
        ("3", "int in place of a ConfigDict"),
        ('{"sede": 3}', "did you mean seed?"),
        ('{"a.b": 3}', "a.b: no such field"),
        ('{"seed": 3.5}', "seed=3.5"),
        ('{"model": 3}', "model: no such field"),
        ('{"budget": {"beta": NaN}}', "budget.beta=nan"),
    ],
)
def test_from_json_refuses(text, said):
    with pytest.raises(ConfigError) as e:
        config.from_json(text)
    assert said in str(e.value)


def test_shipped_configurations_lie_inside_the_package():
    """The wheel must carry every group of configurations as a package."""

    root = Path(__file__).parent.parent
    packages = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"][
        "packages"
    ]
    assert {f"mone.configs.{n.split('/')[0]}" for n in config.names()} <= set(packages)
