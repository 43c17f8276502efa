"""Sizes on the command line: every unit means what it says, nonsense is refused by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vlmcli.errors import UsageError
from vlmcli.options import QUANTISATIONS, format_size, parse_quantisations, parse_size

UNITS = {"": 1, "B": 1, "kB": 1000, "KiB": 1024, "MB": 10**6, "MiB": 2**20, "GB": 10**9}


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)), st.booleans(), st.sampled_from(" \t"))
def test_size_is_number_times_unit(number, unit, is_lower, blank):
    text = f"{number}{blank}{unit.lower() if is_lower else unit}"
    assert parse_size(text) == number * UNITS[unit]


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1e9", "4 GiB extra", "4GiBs", "1,5GB", "∞"])
def test_nonsense_is_a_usage_error_that_quotes_it(text):
    with pytest.raises(UsageError, match="not a size") as caught:
        parse_size(text)
    assert repr(text) in caught.value.message
    assert caught.value.remedy


@given(st.integers(0, 2**50))
def test_a_formatted_size_is_the_size_within_its_digits(size):
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.051, abs=1)


@given(st.lists(st.sampled_from(["int4", "vit-int8"])), st.integers(0, 5))
def test_quantisations_are_the_same_however_they_are_given(names, cut):
    expected = tuple(name for name in QUANTISATIONS if name in names)
    assert parse_quantisations(names) == expected
    parts = [",".join(part) for part in (names[:cut], names[cut:]) if part]
    assert parse_quantisations(parts) == expected
    assert parse_quantisations(expected) == expected
