"""The argument string of a configuration."""

import pytest

from mone.configs.arguments import parse


def test_defaults_bare_first_and_types():
    a = parse("", variant="Ti/16", experts=4, e_c=0.0)
    assert (a.variant, a.experts, a.e_c) == ("Ti/16", 4, 0.0)
    a = parse("B/32, e_c=1,experts=2", variant="Ti/16", experts=4, e_c=0.0)
    assert (a.variant, a.experts, a.e_c) == ("B/32", 2, 1.0)
    assert parse("variant=S/16", variant="Ti/16").variant == "S/16"
    assert parse("init=/a=b", variant="Ti/16", init="").init == "/a=b"


@pytest.mark.parametrize(
    ("arg", "said"),
    [
        ("S/16,B/16", "'B/16' must be KEY=VALUE"),
        ("S/16,e_C=1", "'e_C=1' is unknown; valid: variant=Ti/16, e_c=0.0"),
        ("e_c=x", "'e_c=x': must be of type float"),
        ("e_c=1,e_c=2", "'e_c' is given twice"),
        ("S/16,variant=B/16", "'variant' is given twice"),
    ],
)
def test_refuses(arg, said):
    with pytest.raises(ValueError, match="argument") as e:
        parse(arg, variant="Ti/16", e_c=0.0)
    assert said in str(e.value)


def test_refuses_any_option_where_there_is_none():
    parse("")
    with pytest.raises(ValueError, match="valid: none"):
        parse("x")
