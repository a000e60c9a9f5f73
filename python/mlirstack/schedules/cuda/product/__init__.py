"""Matrix products: what is one, its factors and epilogue, main loops on tensor cores and on FMA units."""
