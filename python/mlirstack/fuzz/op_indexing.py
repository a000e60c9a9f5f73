"""Operations that read or write where data say: gather, scatter, index, embedding.  Indices are brought into range first."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from mlirstack.fuzz.operations import Arguments, Operation, Picker, Value


def _table(pick: Picker, rank: int = 1) -> Value:
    """A value with elements to read."""
    found = pick.value(lambda value: value.rank >= rank and 0 not in value.shape and value.dtype != "bool")
    return found or pick.fresh([max(pick.one_of(pick.sizes), 1) for _ in range(rank)], pick.main_dtype)


def _indices(pick: Picker, rank: int | None = None) -> Value:
    found = pick.value(lambda value: value.dtype == "int64" and (rank is None or value.rank == rank))
    if found is not None:
        return found
    return pick.fresh([pick.one_of(pick.sizes) for _ in range(2 if rank is None else rank)], "int64")


def _one_list(pick: Picker) -> Arguments:
    table = _table(pick)
    return Arguments((table, _indices(pick, 1)), {"dim": pick.dim(table)})


def _any_indices(pick: Picker) -> Arguments:
    return Arguments((_table(pick), _indices(pick)))


def _two_lists(pick: Picker) -> Arguments:
    rows = _indices(pick, 1)
    columns = pick.value(lambda value: value.dtype == "int64" and value.shape == rows.shape)
    return Arguments((_table(pick, 2), rows, columns or pick.fresh(rows.shape, "int64")))


def _embedding(pick: Picker) -> Arguments:
    rows, columns = (max(pick.one_of(pick.sizes), 1) for _ in range(2))
    return Arguments((_indices(pick), pick.fresh((rows, columns), pick.main_float, parameter=True)))


def _same_shape(pick: Picker) -> Arguments:
    table = _table(pick)
    found = pick.value(lambda value: value.dtype == "int64" and value.shape == table.shape)
    return Arguments((table, found or pick.fresh(table.shape, "int64")), {"dim": pick.dim(table)})


def _scatter(pick: Picker) -> Arguments:
    """Of each row one element is written: no two writes meet."""
    table = _table(pick)
    dim = pick.integer(0, table.rank - 1)
    shape = [1 if i == dim else size for i, size in enumerate(table.shape)]
    return Arguments((table, pick.fresh(shape, "int64")), {"dim": dim})


def _slot(pick: Picker) -> Arguments:
    table = _table(pick, 2)
    return Arguments((table,), {"index": pick.integer(0, table.shape[0] - 1)})


def _write_row(a: Any, index: int) -> Any:
    result = a.clone()
    result.select(0, index).fill_(1)
    return result


def _add_rows(a: Any, index: Any) -> Any:
    rows = a[index % a.shape[0]]
    return torch.index_add(a, 0, index % a.shape[0], rows)


def _rows(pick: Picker) -> Arguments:
    return Arguments((_table(pick, 1), _indices(pick, 1)))


OPERATIONS = (
    Operation("index_select", lambda a, i, dim: torch.index_select(a, dim, i % a.shape[dim]), _one_list, "exact"),
    Operation("index", lambda a, i: a[i % a.shape[0]], _any_indices, "exact"),
    Operation("index_pairs", lambda a, i, j: a[i % a.shape[0], j % a.shape[1]], _two_lists, "exact"),
    Operation("index_columns", lambda a, i, j: a[:, j % a.shape[1]], _two_lists, "exact"),
    Operation("take", lambda a, i: torch.take(a, i % a.numel()), _any_indices, "exact"),
    Operation("embedding", lambda i, w: F.embedding(i % w.shape[0], w), _embedding, "exact"),
    Operation("gather", lambda a, i, dim: torch.gather(a, dim, i % a.shape[dim]), _same_shape, "exact"),
    Operation("scatter", lambda a, i, dim: torch.scatter(a, dim, i % a.shape[dim], 1), _scatter, "exact"),
    Operation("scatter_add", lambda a, i, dim: torch.scatter_add(a, dim, i % a.shape[dim], a), _same_shape),
    Operation("index_add", _add_rows, _rows),
    Operation("write_row", _write_row, _slot, "exact"),
    Operation("one_hot", lambda i: F.one_hot(i % 5, 5), lambda pick: Arguments((_indices(pick),)), "exact"),
)
