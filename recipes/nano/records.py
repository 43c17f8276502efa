"""Makes short records: amounts, dates, rows of invoices and tables, addresses, formulas.

Templates filled from a seeded generator and a word list; nothing here is a real person, company or
account. Grammar was given up: what has to be learned is digits, signs and their spacing.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Sequence

_MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December", "Jan.", "Feb.", "Mar.", "Apr.", "Aug.", "Sept."),
    *("Oct.", "Nov.", "Dec.", "Januar", "März", "mai", "juillet", "août"),
)
_LABELS = (
    *("Total", "Subtotal", "Invoice No.", "Tax (19%)", "Qty", "Date", "Page", "Fig.", "Table"),
    *("No.", "Section", "Amount due", "P.O. Box", "Tel.", "Ref.", "VAT", "Due date", "Balance"),
    *("Order number", "IBAN", "Account", "Rechnung Nr.", "Summe", "Montant", "Chapter", "Vol."),
    *("pp.", "Case No.", "Docket No.", "Attn", "Re", "cc", "From", "To", "Subject"),
)
_ROADS = ("St.", "Street", "Ave", "Road", "Blvd.")
_FIRMS = ("Inc.", "Ltd.", "GmbH", "S.A.", "LLC", "& Co.")
_DOMAINS = ("com", "org", "net", "de", "fr", "co.uk")


class Records:
    """Draws one record after another from `rng`; `words` are lower-case dictionary words."""

    def __init__(self, rng: random.Random, words: Sequence[str]) -> None:
        self._random = rng
        self._words = words
        self._kinds: tuple[Callable[[], str], ...] = (
            self._amount,
            self._amount,
            self._invoice_row,
            self._invoice_row,
            self._date,
            self._identifier,
            self._address,
            self._contact,
            self._formula,
            self._contents_row,
            self._labelled,
            self._number_row,
        )
        self._form_kinds = (self._form_row, self._form_row, self._range, self._cells)

    def draw(self) -> str:
        """One record."""
        return self._random.choice(self._kinds)()

    def draw_form(self) -> str:
        """One record of the kinds that forms and tables have."""
        return self._random.choice(self._form_kinds)()

    def _word(self) -> str:
        return self._random.choice(self._words).removesuffix("'s")

    def _digits(self, least: int, most: int) -> str:
        return "".join(
            self._random.choice(string.digits) for _ in range(self._random.randint(least, most))
        )

    def _amount(self) -> str:
        rng = self._random
        value = rng.random() * 10 ** rng.randint(0, 6)
        text = rng.choice((f"{value:,.2f}", f"{value:.2f}", f"{value:,.0f}", f"{value:.3f}"))
        if rng.random() < 0.25:
            text = text.translate(str.maketrans(",.", ".,"))
        sign = rng.choice(("$", "€", "£", "", "", "", "USD ", "EUR ", "-", "CHF "))
        tail = rng.choice(("", "", "", " €", "%", " kg", " EUR", " CR"))
        return f"({sign}{text})" if rng.random() < 0.06 else sign + text + tail

    def _date(self) -> str:
        rng = self._random
        day, month, year = rng.randint(1, 28), rng.randint(1, 12), rng.randint(1780, 2035)
        name = rng.choice(_MONTHS)
        return rng.choice(
            (
                f"{day:02}/{month:02}/{year}",
                f"{year}-{month:02}-{day:02}",
                f"{day}.{month}.{year}",
                f"{name} {day}, {year}",
                f"{day} {name} {year}",
                f"{month}/{day}/{year % 100:02}",
                f"{rng.randint(0, 23)}:{rng.randint(0, 59):02}",
            )
        )

    def _identifier(self) -> str:
        rng = self._random
        letters = "".join(rng.choice(string.ascii_uppercase) for _ in range(rng.randint(1, 4)))
        return rng.choice(
            (
                f"{letters}-{self._digits(3, 6)}",
                f"{letters}{self._digits(2, 5)}-{self._digits(2, 4)}",
                f"{self._digits(4, 4)} {self._digits(4, 4)} {self._digits(4, 4)}",
                f"{self._digits(2, 3)}-{self._digits(3, 4)}-{self._digits(1, 2)}",
                f"#{self._digits(3, 8)}",
                f"{self._word()}_{self._word()}()",
                f"{rng.getrandbits(32):08x}",
                f"v{self._digits(1, 1)}.{self._digits(1, 2)}.{self._digits(1, 2)}",
            )
        )

    def _invoice_row(self) -> str:
        rng = self._random
        amount = rng.random() * 10 ** rng.randint(1, 4)
        count = rng.randint(1, 40)
        name = " ".join(self._word() for _ in range(rng.randint(1, 4))).capitalize()
        unit = rng.choice(("", "$", "€", "£"))
        return f"{count} {name} {unit}{amount:,.2f} {unit}{amount * count:,.2f}"

    def _labelled(self) -> str:
        rng = self._random
        label = rng.choice(_LABELS)
        value = rng.choice((self._amount, self._date, self._identifier, self._contact))()
        return f"{label}{rng.choice((':', '', ' :', ''))} {value}"

    def _address(self) -> str:
        rng = self._random
        name = f"{self._word().capitalize()} {self._word().capitalize()}"
        letters = "".join(rng.choices(string.ascii_uppercase, k=3))
        title = rng.choice(("Mr.", "Mrs.", "Dr.", "Prof."))
        return rng.choice(
            (
                f"{rng.randint(1, 9999)} {self._word().capitalize()} {rng.choice(_ROADS)}",
                f"{name}, {rng.choice(_FIRMS)}",
                f"{self._word().capitalize()}, {letters[:2]} {self._digits(5, 5)}",
                f"{title} {letters[2]}. {name}",
            )
        )

    def _contact(self) -> str:
        rng = self._random
        first, second = self._word().lower(), self._word().lower()
        domain = rng.choice(_DOMAINS)
        return rng.choice(
            (
                f"{first}.{second}@{self._word().lower()}.{domain}",
                f"https://www.{first}.{domain}/{second}",
                f"+{rng.randint(1, 99)} {self._digits(2, 4)} {self._digits(4, 7)}",
                f"({self._digits(3, 3)}) {self._digits(3, 3)}-{self._digits(4, 4)}",
            )
        )

    def _formula(self) -> str:
        rng = self._random
        a, b, c = (rng.choice(string.ascii_letters) for _ in range(3))
        return rng.choice(
            (
                f"{a} = {b} + {rng.randint(2, 99)}{c}",
                f"f({a}) = {a}² - {rng.randint(1, 9)}{b}",
                f"({a} + {b})/{c} < {rng.random():.3f}",
                f"{rng.randint(2, 99)} × {rng.randint(2, 99)} = {rng.randint(4, 9801)}",
                f"p < 0.{self._digits(2, 3)}, n = {rng.randint(3, 900)}",
                f"{rng.randint(1, 90)}° {rng.randint(0, 59)}' N",
            )
        )

    def _contents_row(self) -> str:
        rng = self._random
        title = " ".join(self._word() for _ in range(rng.randint(1, 4))).title()
        dots = rng.choice((".", ". ")) * rng.randint(4, 18)
        number = f"{rng.randint(1, 30)}{rng.choice(('', '.', '.1'))}"
        return f"{number} {title} {dots} {rng.randint(1, 600)}"

    def _number_row(self) -> str:
        rng = self._random
        form = rng.choice(("{:.1f}", "{:.2f}", "{:.0f}", "{:,.0f}"))
        return " ".join(
            form.format(rng.random() * 10 ** rng.randint(1, 5)) for _ in range(rng.randint(2, 7))
        )

    def _form_row(self) -> str:
        """A row of a printed form: arrows to where one writes, boxes to tick."""
        rng = self._random
        words = " ".join(self._word() for _ in range(rng.randint(1, 5))).capitalize()
        line = f"{rng.randint(1, 99)}{rng.choice(('', 'a', 'b', 'c'))}"
        sign = rng.choice("▶▶▶▲▼◀→←")
        return rng.choice(
            (
                f"{line} {words} {sign} {line}",
                f"{words} {sign} {rng.choice((self._amount, self._date))()}",
                f"{sign} {words}",
                f"{words}. {sign} {line}",
                f"{sign} {line}",
                f"{rng.choice('□■○●✓✗')} {words}",
                f"{words} {rng.choice('□■✓')} Yes {rng.choice('□■✓')} No",
                f"{line} {words} {'. ' * rng.randint(1, 9)}{line}",
                f"{rng.choice('★◆●■')} {words} {rng.choice('★◆●■')}",
                f"{words} {rng.choice('✓✗')} {rng.choice('✓✗')}",
            )
        )

    def _range(self) -> str:
        """From one number, year or day to another, with the dash that print has there."""
        rng = self._random
        year, number = rng.randint(1780, 2034), rng.randint(1, 900)
        first, second = (f"{rng.choice(_MONTHS)} {rng.randint(1, 28)}" for _ in range(2))
        dash = "–" if rng.random() < 0.8 else "-"
        return rng.choice(
            (
                f"{year}{dash}{(year + 1) % 100:02}",
                f"{year}{dash}{year + rng.randint(1, 40)}",
                f"{rng.choice(('pp.', 'p.', 'lines', 'Nos.'))} {number}{dash}{number + 7}",
                f"{first}{dash}{second}",
                f"{number}{dash}{number + rng.randint(1, 90)}%",
                f"{self._word().capitalize()} – {self._word()}",
                f"~{number}",
            )
        )

    def _cells(self) -> str:
        """Cells of a table: one short word or code, or a few of them."""
        rng = self._random
        cells = (
            lambda: self._word().lower(),
            lambda: self._word().capitalize(),
            lambda: "".join(rng.choices(string.ascii_uppercase, k=rng.randint(1, 4))),
            lambda: rng.choice(("yes", "no", "n/a", "Yes", "No", "unsure", "none", "new", "see")),
            lambda: self._word() + rng.choice("²³®*†"),
            lambda: str(rng.randint(0, 99)),
        )
        return " ".join(rng.choice(cells)() for _ in range(rng.choice((1, 1, 1, 2, 3))))
