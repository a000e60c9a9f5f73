"""Failures replayed and made small: reproducer directories, and a delta debugger over MLIR modules.

What fails (a pass, a verifier, the process, a number) is described by :mod:`.outcome`; :mod:`.server` tries candidates in
forked processes, because many of them crash; :mod:`.reducer` decides what to try.
"""
