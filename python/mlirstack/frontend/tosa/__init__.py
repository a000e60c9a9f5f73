"""What the TOSA route rewrites before import, because TOSA lacks it or says something else."""
