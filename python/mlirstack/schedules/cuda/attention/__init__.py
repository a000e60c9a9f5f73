"""Attention in one kernel: found in a graph, written for tensor cores of several generations."""
