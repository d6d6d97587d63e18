"""Answers are computed exactly, within bounds, and never evaluated by Python."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qfr import arithmetic
from qfr.canonical import canonical
from qfr.protocol import read_answer

SLOW = settings(deadline=None, max_examples=300)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("200.0 * 0.5", Fraction(100)),
        ("1 - 2 - 3", Fraction(-4)),
        ("8 / 4 / 2", Fraction(1)),
        ("2 + 3 * 4", Fraction(14)),
        ("-2 * -(3)", Fraction(6)),
        ("--2", Fraction(2)),
        ("1/3 * 3", Fraction(1)),
        (" ( 1.5 ) ", Fraction(3, 2)),
        (".5 + 5.", Fraction(11, 2)),
        ("0.1 + 0.2", Fraction(3, 10)),
        ("(" * 20 + "1" + ")" * 20, Fraction(1)),
        ("9**9**9", None),
        ("1/0", None),
        ("1/(2-2)", None),
        ("__import__('os')", None),
        ("(" * 21 + "1" + ")" * 21, None),
        ("(" * 50_000 + "1" + ")" * 50_000, None),
        ("9" * 21, None),
        ("1+" * 100 + "1", None),
        ("", None),
        (" ", None),
        ("()", None),
        ("(1", None),
        ("1)", None),
        ("1 2", None),
        ("1.2.3", None),
        ("+1", None),
        ("1e3", None),
        ("1,234.50", None),
        ("$5", None),
        ("5 %", None),
        ("5 EUR", None),
        ("0x10", None),
        ("1_000", None),
        ("٣", None),
        ("1\x00", None),
        ("nan", None),
    ],
)
def test_arithmetic(text: str, value: Fraction | None) -> None:
    assert arithmetic.evaluate(text) == value
    answer = read_answer(canonical(text))
    assert (answer.value, answer.literal, answer.expression) == (value, False, value is not None)


@pytest.mark.parametrize(
    "text", ["null", "true", "[1]", "{}", "", "01", "1 ", "NaN", '"', '"1', "1e41", "9" * 41]
)
def test_arguments_that_are_no_number(text: str) -> None:
    assert read_answer(text).value is None
    assert not read_answer(text).expression


def _trees(
    leaf: st.SearchStrategy[tuple[str, Fraction | None]],
) -> st.SearchStrategy[tuple[str, Fraction | None]]:
    def join(
        parts: tuple[tuple[str, Fraction | None], str, tuple[str, Fraction | None]],
    ) -> tuple[str, Fraction | None]:
        (left, a), sign, (right, b) = parts
        text = f"({left}) {sign} ({right})"
        if a is None or b is None or (sign == "/" and b == 0):
            return text, None
        return text, {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else a}[sign]

    return st.recursive(
        leaf, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(join), max_leaves=6
    )


@SLOW
@given(_trees(st.decimals(0, 10_000, places=2).map(lambda d: (format(d, "f"), Fraction(d)))))
def test_expressions_are_exact(tree: tuple[str, Fraction | None]) -> None:
    text, value = tree
    assert arithmetic.evaluate(text) == (value if len(text) <= arithmetic.MAX_CHARS else None)


@SLOW
@given(
    st.lists(
        st.tuples(st.integers(1, 999), st.sampled_from([" + ", "-", " * ", "/", "- -"])),
        min_size=1,
        max_size=9,
    )
)
def test_precedence_is_that_of_python(chain: list[tuple[int, str]]) -> None:
    text = "".join(f"{number}{sign}" for number, sign in chain) + "7"
    exact = "".join(f"Fraction({number}){sign}" for number, sign in chain) + "Fraction(7)"
    assert arithmetic.evaluate(text) == eval(exact, {"Fraction": Fraction})
