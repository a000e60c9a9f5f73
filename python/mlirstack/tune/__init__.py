"""Measured schedules: kernels of models built in all ways worth trying, timed on a GPU, the fastest kept in a table."""
