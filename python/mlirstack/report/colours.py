"""Syntax colours by Pygments, as compact runs of (class, length) for each line.

The page holds texts once and colours as numbers; the browser makes elements only for lines that can be seen.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, ClassVar

from pygments.lexer import Lexer, RegexLexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Token

# Classes that the style sheet has colours for, by kind of token; a kind not listed has that of its parent.
CLASSES = ("", "comment", "keyword", "type", "name", "op", "value", "number", "string", "symbol", "attr")
_CLASS_OF = {
    Comment: "comment",
    Keyword: "keyword",
    Keyword.Type: "type",
    Name: "",
    Name.Builtin: "op",
    Name.Class: "op",
    Name.Namespace: "op",
    Name.Attribute: "attr",
    Name.Decorator: "attr",
    Name.Function: "op",
    Name.Label: "symbol",
    Name.Constant: "symbol",
    Name.Variable.Global: "symbol",
    Name.Variable: "value",
    Name.Other: "op",
    Number: "number",
    String: "string",
    Operator: "",
    Punctuation: "",
    Token: "",
}
_LEXERS = {"mlir": "mlir", "py": "python", "ll": "llvm", "ptx": "ptx", "s": "nasm", "json": "json"}


class _Listing(RegexLexer):  # type: ignore[misc]
    """An instruction of a disassembler: address, label or directive, predicate, opcode, operands."""

    tokens: ClassVar[dict[str, list[Any]]] = {
        "root": [
            (r"\s*(/\*[0-9a-f]+\*/|[0-9a-f]+:)", Comment),  # address
            (r"\s*//.*|;\s.*", Comment),
            (r"\s*\.?[\w.$]+:$", Name.Label),
            (r"\s*\.\w+", Keyword),
            (r"\s*@!?U?P\w+", Name.Decorator),
            (r"\s*[A-Za-z][\w.]*", Name.Builtin, "operands"),
            (r".", Token),
        ],
        "operands": [
            (r";\s\S.*", Comment),
            (r'"[^"]*"', String),
            (r"-?0x[0-9a-fA-F]+|-?\b\d+(\.\d+)?(e[+-]?\d+)?\b", Number),
            (
                r"\b(U?R[0-9Z]\w*|U?P[0-9T]\b|[xyz]mm\d+|[re]?[abcd][xlh]|[re]?[sd]il?|[re]?[sb]pl?|r\d+[dwb]?|rip)",
                Name.Variable,
            ),
            (r"`?\(?\.L\w+\)?", Name.Label),
            (r"[A-Za-z_]\w*", Name),
            (r".", Token),
        ],
    }


@cache
def _lexer(extension: str) -> Lexer:
    if extension in ("s", "sass"):
        return _Listing(stripnl=False, ensurenl=False)
    name = _LEXERS.get(extension, "text")
    return get_lexer_by_name(name, stripnl=False, ensurenl=False)


@cache
def _class(kind: Any) -> int:
    while kind not in _CLASS_OF:
        kind = kind.parent
    return CLASSES.index(_CLASS_OF[kind])


def coloured(lines: list[str], extension: str) -> list[int]:
    """Runs ``length, class`` of all lines, one after the other; a length of 0 with class 0 ends a line.

    Lines are looked at one by one and each different one once: a listing repeats itself, and no construct of these
    languages that matters for colours goes on beyond a line.
    """
    lexer = _lexer(extension)
    if extension == "py":  # strings go on beyond lines
        return _runs(lexer, "\n".join(lines))
    known: dict[str, list[int]] = {}
    runs: list[int] = []
    for line in lines:
        shape = _NUMBERED.sub(_zeros, line)
        if shape not in known:
            known[shape] = _runs(lexer, shape)
        runs += known[shape]
    return runs


# Names that differ in nothing but a number, and addresses: lines that differ in these alone have the same colours.
_NUMBERED = re.compile(r"%[A-Za-z]*\d+|![0-9]+|/\*[0-9a-f]+\*/|^ +[0-9a-f]+:")
_TO_ZERO = str.maketrans("0123456789abcdef", "0" * 16)
_DIGITS_TO_ZERO = str.maketrans("0123456789", "0" * 10)


def _zeros(match: re.Match[str]) -> str:
    found = match.group()
    return found.translate(_TO_ZERO if found[0] in "/ " else _DIGITS_TO_ZERO)


def _runs(lexer: Lexer, source: str) -> list[int]:
    runs: list[int] = []
    begins = True
    for kind, text in lexer.get_tokens(source):
        number = _class(kind)
        for part, piece in enumerate(text.split("\n")):
            if part:
                runs += [0, 0]
                begins = True
            if not piece:
                continue
            # White space has the colour of what stands before it: fewer runs.
            if not begins and (runs[-1] == number or piece.isspace()):
                runs[-2] += len(piece)
            else:
                runs += [len(piece), number]
                begins = False
    return runs if begins and runs[-2:] == [0, 0] else [*runs, 0, 0]
