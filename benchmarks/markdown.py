"""From a result to a table: each column has a heading, a place in the row, and a form."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.report import machine_in_words

type Row = Mapping[str, Any]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        cell: A key of the row, a path of keys, or a function of the row. A key that is missing is
            an error; a function gives None for a cell that stays empty.
        form: As `str.format` takes it.
        left: Words stand to the left, numbers to the right.
    """

    heading: str
    cell: str | tuple[str, ...] | Callable[[Row], Any]
    form: str = "{}"
    left: bool = False

    def of(self, row: Row) -> str:
        """The cell of a row."""
        value: Any = row
        if callable(self.cell):
            value = self.cell(row)
        else:
            for key in (self.cell,) if isinstance(self.cell, str) else self.cell:
                value = value[key]
        return "" if value is None else self.form.format(value)


def words(heading: str, cell: str | tuple[str, ...] | Callable[[Row], Any] = "name") -> Column:
    """A column of words; of the rows' names if nothing is said."""
    return Column(heading, cell, left=True)


def table(columns: Iterable[Column], rows: Iterable[Row]) -> str:
    """Markdown, a line for each row."""
    columns = list(columns)
    cells = [[column.of(row) for column in columns] for row in rows]
    return _lines([(column.heading, column.left) for column in columns], cells)


def grid(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table whose rows are cells already: words in the first column, then numbers."""
    kinds = [(heading, number == 0) for number, heading in enumerate(headings)]
    return _lines(kinds, [list(map(str, row)) for row in rows])


def _lines(headings: Sequence[tuple[str, bool]], rows: Iterable[Sequence[str]]) -> str:
    head = f"| {' | '.join(heading for heading, _ in headings)} |".replace("|  |", "| |")
    rule = "|" + "".join("---|" if left else "---:|" for _, left in headings)
    return "\n".join([head, rule, *(f"| {' | '.join(row)} |" for row in rows)])


def named(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups of a result as rows that know their names; single figures are left out."""
    return [{**one, "name": name} for name, one in result.items() if isinstance(one, Mapping)]


def measured(saved: Row, before: str = "", *, commit: bool = False) -> str:
    """When and where a result was measured, as a sentence."""
    parts = [saved["date"], machine_in_words(saved["machine"])]
    parts += [f"commit {saved['versions']['commit']}"] if commit else []
    return f"{before}{', '.join(parts)}."


def with_sentence(sentence: str, columns: Iterable[Column], rows: Iterable[Row]) -> str:
    """A table below a sentence on it."""
    return f"{sentence}\n\n{table(columns, rows)}"
