"""Kernels that stop the device where a check of the model fails, as device-side asserts of torch's own kernels do.

The host cannot look at a flag while a graph of the user's is replayed, so there each check is a kernel of its own.  Takes
the messages of the checks, gives PTX, which the driver compiles: no compiler is needed, whatever the architecture.
"""

from __future__ import annotations

from collections.abc import Sequence

FILE = "mlirstack"  # what stands for the source file in the driver's report

_HEAD = """\
.version 7.0
.target sm_80
.address_size 64

.extern .func __assertfail
(
    .param .b64 message,
    .param .b64 file,
    .param .b32 line,
    .param .b64 function,
    .param .b64 character_bytes
);
"""

# One thread.  The driver prints the message to stderr, and every later call of the context fails.
_KERNEL = """
.visible .entry {name}(.param .u64 flag)
{{
    .reg .pred %holds;
    .reg .b16 %byte;
    .reg .b64 %address<3>;
    ld.param.u64 %address0, [flag];
    ld.global.u8 %byte, [%address0];
    setp.ne.u16 %holds, %byte, 0;
    @%holds bra done;
    mov.u64 %address1, {message};
    cvta.global.u64 %address1, %address1;
    mov.u64 %address2, {file};
    cvta.global.u64 %address2, %address2;
    {{
        .param .b64 message;
        .param .b64 file;
        .param .b32 line;
        .param .b64 function;
        .param .b64 character_bytes;
        st.param.b64 [message], %address1;
        st.param.b64 [file], %address2;
        st.param.b32 [line], 0;
        st.param.b64 [function], %address2;
        st.param.b64 [character_bytes], 1;
        call.uni __assertfail, (message, file, line, function, character_bytes);
    }}
    trap;
done:
    ret;
}}
"""


def assertion_name(number: int) -> str:
    """The kernel of message ``number``; its argument is the address of a byte that must not be 0."""
    return f"mlirstack_assert_{number}"


def assertions(messages: Sequence[str]) -> str:
    """PTX with one kernel for each message."""
    parts = [_HEAD, _text("mlirstack_file", FILE)]
    for number, message in enumerate(messages):
        symbol = f"mlirstack_message_{number}"
        parts.append(_text(symbol, message))
        parts.append(_KERNEL.format(name=assertion_name(number), message=symbol, file="mlirstack_file"))
    return "".join(parts)


def _text(symbol: str, text: str) -> str:
    """A text in device memory, with the 0 that ends it."""
    data = [*text.encode(), 0]
    return f".global .align 1 .b8 {symbol}[{len(data)}] = {{{', '.join(map(str, data))}}};\n"
