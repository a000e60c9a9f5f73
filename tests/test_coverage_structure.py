"""What models do around their arithmetic: writes, views, containers, scalars, strides, ranks and sizes; compared with eager.

Compared are the outputs (containers, dtypes, shapes, values), what a call wrote into its inputs and the state of the model,
for two calls in a row: the first gives the example of the export, the second other numbers.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import mlirstack as ms
from mlirstack.bundle.trees import flatten, parse, unflatten
from mlirstack.errors import SignatureError, UnsupportedError, UsageError
from mlirstack.frontend import trees

Pair = namedtuple("Pair", "left right")


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    scale: torch.Tensor | None = None


@dataclasses.dataclass
class Unknown:
    """Not registered with torch."""

    x: torch.Tensor


torch.export.register_dataclass(Batch)


class Function(nn.Module):
    """A model that is one Python function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


class Written(nn.Module):
    """Buffers written in every way; the order of reads and writes shows in the result."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("cache", torch.zeros(3, 4))
        self.register_buffer("unread", torch.zeros(2, 4), persistent=False)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        before = self.mean * 1
        self.count += 1
        self.mean.mul_(0.5).add_(x.mean(0))
        self.cache[1:].copy_(x)
        self.cache[0, ::2] = x[1, ::2] - 1
        self.unread.copy_(x)
        row = self.cache[1]
        row.add_(10)
        return before, self.norm(x) + self.cache.sum(), self.count, row


def in_place(x, y):
    z = x + y
    z.mul_(2).add_(y, alpha=0.5).clamp_(min=-1)
    z[0] = y[1]
    z[:, 1:3] += 1
    z.t()[3].fill_(7)
    z[z > 3] = -3.0
    z.masked_fill_(y > 1, 0.25)
    z.index_fill_(1, torch.tensor([0]), 5)
    z.view(-1)[2:5].zero_()
    z.index_put_((torch.tensor([1]),), y[:1], accumulate=True)
    return z.sigmoid_()


def inputs_written(x, y, n):
    v = x[0]
    x.add_(1)
    y[:, 1].mul_(3)
    y.t()[0].sub_(1)
    n += 2
    return v, x * 1, y.sum(), n


def views(x, y):
    return x.view(-1), x.t(), x[1:, ::2], y.expand(3, -1), x, x.unfold(1, 2, 1), y.detach(), x.diagonal(), y[None], x[1, 1]


def fresh(x):
    y = x * 2
    return x.clone(), x + 0, y, y.clone(), x.view(-1).clone().view(4, 4), x.contiguous() + 0


def containers(batch, table, *, options, pair=None):
    scale = batch.scale if batch.scale is not None else 2.0
    total = batch.tokens * scale + table["a"][0] + options[1]
    if pair is not None:
        total = total + pair.left
    return OrderedDict(
        total=total, nothing=None, pair=Pair(total + 1, (table["a"][1], 3, "text", 0.5, True)), batch=Batch(total - 1, None)
    )


def scalars(x, n, f, flag, mode, nothing):
    y = x * n + f if flag else x
    y = y.exp() if mode == "exp" else y
    return y if nothing is None else -y, n * 2, x.dim(), f / 2, not flag, x.sum().item(), int(x[0])


def ranks(*xs):
    return tuple((x * 2 + 1).transpose(0, -1).sum(-1, keepdim=True) if x.dim() else x * 2 + 1 for x in xs), [
        x.flatten() - 1 for x in xs
    ]


def sizes(e, o, m, w):
    empty = e + 1, e.reshape(0, 3), e.flatten(), torch.cat([e, m]), torch.ones(4, 0) @ e.new_ones(0, 3), m[:0] * 2
    reduced = e.sum(), e.sum(0), e.mean(), e.prod(1), (e > 0).any(), (e > 0).all(), e @ w, e[None].softmax(-1)
    single = o.squeeze() * 2, o.expand(2, 3, 4) + 1, o.sum(), o.reshape(()) + 1, torch.stack([o, o]) + 0.5
    return empty, reduced, single, m.mean(0, keepdim=True), m[:1].squeeze(0) + 1, m.split([0, 2])[0] * 1


def strided(*xs):
    return [x.sum(0) + x[-1] * 2 for x in xs], [x.relu() for x in xs], xs[0] @ xs[0].t()


def all_strides():
    base = torch.randn(40)
    return (
        base.as_strided((4, 3), (1, 4)),  # transposed
        base.as_strided((4, 3), (0, 1)),  # expanded
        base.as_strided((4, 3), (0, 0)),
        base.as_strided((4, 3), (2, 1)),  # overlapping
        base.as_strided((4, 3), (9, 2), 1),  # gaps
        base.as_strided((2, 3, 2, 2), (12, 1, 6, 3)),  # channels last
        base.as_strided((1, 3), (17, 1)),  # any stride of a size 1
    )


def draw(*shape):
    return torch.randn(shape)


CASES = {
    "in-place": (Function(in_place), lambda: (draw(3, 4), draw(3, 4)), dict),
    "inputs written": (Function(inputs_written), lambda: (draw(3, 4), draw(3, 4), torch.tensor(3)), dict),
    "buffers written": (Written(), lambda: (draw(2, 4),), dict),
    "views": (Function(views), lambda: (draw(3, 4), draw(4)), dict),
    "fresh": (Function(fresh), lambda: (draw(4, 4),), dict),
    "containers": (
        Function(containers),
        lambda: (Batch(draw(3), draw(3)), {"a": [draw(3), draw(2)]}),
        lambda: {"options": (draw(3), draw(3)), "pair": Pair(draw(3), draw(2))},
    ),
    "containers with None": (
        Function(containers),
        lambda: (Batch(draw(3)), {"a": (draw(3), draw(2))}),
        lambda: {"options": [None, draw(3)]},
    ),
    "scalars": (Function(scalars), lambda: (draw(3), 3, 0.5, True, "exp", None), dict),
    "ranks": (Function(ranks), lambda: tuple(draw(*(2, 3, 1, 4, 2, 3)[:rank]) for rank in range(7)), dict),
    "sizes": (Function(sizes), lambda: (draw(0, 3), draw(1, 1, 1), draw(2, 3), draw(3, 5)), dict),
    "strides": (Function(strided), all_strides, dict),
}


def assert_same(found, wanted):
    leaves, spec = pytree.tree_flatten(wanted)
    found_leaves, found_spec = pytree.tree_flatten(found)
    assert found_spec == spec
    for a, b in zip(found_leaves, leaves, strict=True):
        assert type(a) is type(b) or isinstance(b, nn.Parameter)
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert a == pytest.approx(b) if isinstance(b, float) else a == b


@pytest.mark.parametrize("name", CASES)
def test_structure_is_eagers(name):
    model, args, kwargs = CASES[name]
    eager = copy.deepcopy(model)
    torch.manual_seed(0)
    compiled = ms.compile(model, args(), kwargs=kwargs())
    kept = []
    for _ in range(2):
        ours = args(), kwargs()
        theirs = copy.deepcopy(ours)
        with torch.no_grad():
            wanted = eager(*theirs[0], **theirs[1])
        found = compiled(*ours[0], **ours[1])
        kept.append((found, copy.deepcopy(wanted)))  # eager gives its buffers themselves
        assert_same(ours, theirs)
        assert_same(dict(model.named_buffers()), dict(eager.named_buffers()))
    for found, wanted in kept:
        assert_same(found, wanted)


class Shared(nn.Module):
    """A buffer that is a view of another one, which is written."""

    def __init__(self, as_buffer):
        super().__init__()
        self.register_buffer("whole", torch.zeros(4))
        if as_buffer:
            self.register_buffer("part", self.whole[1:])
        else:
            self.part = self.whole[1:]

    def forward(self, x):
        self.whole.add_(1)
        return self.part + x


class Assigned(nn.Module):
    """A tensor that each call replaces, without being a buffer."""

    def __init__(self):
        super().__init__()
        self.state = torch.zeros(3)

    def forward(self, x):
        self.state = self.state + 1
        return x + self.state


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Shared(as_buffer=True), "'whole' and 'part' share memory"),
        (Shared(as_buffer=False), "'whole' and 'part' share memory"),
        (Assigned(), "assigns to 'self.state'"),
        (Function(Unknown), "Unknown"),
    ],
)
def test_writes_that_would_be_lost_are_refused_by_name(model, message):
    with pytest.raises(UnsupportedError, match=message):
        ms.compile(model, (draw(3),))


def test_a_call_whose_written_input_shares_memory_is_refused():
    compiled = ms.compile(Function(lambda a, b: a.add_(1) * b), (draw(3), draw(3)))
    memory = draw(7)
    for a, b in ((memory[:3], memory[:3]), (memory[:3], memory[2:5])):
        with pytest.raises(SignatureError, match="'args_1' shares memory with 'args_0'"):
            compiled(a, b)
    torch.testing.assert_close(compiled(memory[:3], memory[3:6]), memory[:3] * memory[3:6])


def test_numbers_of_the_program_are_told_apart_by_their_bits():
    compiled = ms.compile(Function(lambda x, n, f: x * f + n), (torch.ones(2), float("nan"), -0.0))
    assert compiled(torch.ones(2), float("nan"), -0.0).isnan().all()
    with pytest.raises(SignatureError, match=r"exported for -0\.0"):
        compiled(torch.ones(2), float("nan"), 0.0)


def keyed(table, lists, size, *, last):
    (a,) = lists["a"]
    return {("sum", (1, None)): table["w", 0] - table["w", 1], 2: last["z"]["y"] * a, None: last["x"].reshape(size)}


def test_dictionaries_are_taken_by_their_keys_whatever_these_are():
    def call(*order):
        w, z = [(("w", i), draw(3)) for i in range(2)], [("z", {"y": draw(3)}), ("x", draw(4))]
        lists = defaultdict(list, {"b": deque([draw(2)]), "a": [draw(3)]})
        if order:
            lists = defaultdict(list, reversed(lists.items()))
        return (dict(w[:: order[0] if order else 1]), lists, torch.Size([2, 2])), {"last": dict(z[:: -1 if order else 1])}

    args, kwargs = call()
    compiled = ms.compile(Function(keyed), args, kwargs=kwargs)
    for args, kwargs in (call(), call(-1)):
        assert_same(compiled(*args, **kwargs), keyed(*args, **kwargs))
    args[0].pop(("w", 0))
    with pytest.raises(SignatureError, match="takes 8 value"):
        compiled(*args, **kwargs)
    args[0]["w", 2] = draw(3)
    with pytest.raises(SignatureError, match="nested otherwise"):
        compiled(*args, **kwargs)


def test_an_ordered_dictionary_keeps_its_order():
    compiled = ms.compile(Function(lambda d: torch.stack(list(d.values()))), (OrderedDict(a=draw(3), b=draw(3)),))
    with pytest.raises(SignatureError, match="nested otherwise"):
        compiled(OrderedDict(b=draw(3), a=draw(3)))


def test_keys_have_a_text_form_or_are_refused():
    value = {("a", (1, None)): 1, 3: [2, {True: 3}], None: (4,)}
    spec = pytree.tree_structure(value)
    text = trees.dumps(spec)
    assert trees.loads(text) == spec
    assert unflatten(parse(text), iter(flatten(parse(text), dict(reversed(value.items()))))) == value
    for bad in ({b"a": 1}, defaultdict(lambda: 0, a=1), defaultdict(None, a=1)):
        with pytest.raises(UsageError, match=r"no text form|cannot be found by a name"):
            trees.dumps(pytree.tree_structure(bad))


def test_an_input_of_a_class_of_its_own_is_refused_by_name():
    kind = enum.Enum("Kind", ["ONE"])
    with pytest.raises(UnsupportedError, match="is a 'Kind', no tensor"):
        ms.compile(Function(lambda x, one: x + one.value), (draw(3), kind.ONE))
